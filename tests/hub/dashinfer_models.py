"""Tiny models as DashInfer 1.3.0 was given them; NumPy alone, for it runs there, too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 72, 2, 1, 16, 41
PROMPT = (3, 1, 4, 15, 9, 26, 5, 35, 8, 40)


class Case(NamedTuple):
    """A serialised model: which type, element type, and how its linear weights were quantised.

    drawn: the likeliest tokens after PROMPT, one after another, by DashInfer's own engine.
    """

    model_type: str
    dashinfer_type: str
    data_type: str
    rope_theta: float
    num_layers: int = 1
    tied: bool = False
    weight_type: str | None = None
    group_size: int | None = None
    rope_ratio: float = 1.0
    drawn: tuple[int, ...] = ()


CASES = {
    "llama": Case("llama", "LLaMA_v3", "float32", 500000.0),
    "qwen2": Case("qwen2", "Qwen_v20", "bfloat16", 1000000.0, num_layers=2, tied=True),
    "llama_a16w8": Case(
        "llama", "LLaMA_v2", "float32", 10000.0, weight_type="uint8", group_size=64
    ),
    "qwen2_a16w8": Case("qwen2", "Qwen_v15", "float32", 10000.0, weight_type="int8"),
    "qwen": Case(
        "qwen", "Qwen_v10", "float32", 10000.0,
        drawn=(8, 9, 40, 8, 8, 9, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9),
    ),
    "qwen_a16w8": Case("qwen", "Qwen_v10", "float32", 10000.0, weight_type="int8"),
    "chatglm2": Case(
        "chatglm", "ChatGLM_v2", "float32", 10000.0, rope_ratio=4.0,
        drawn=(3, 17, 37, 23, 4, 1, 23, 4, 37, 38, 13, 36, 1, 36, 1, 36),
    ),
    "chatglm3_a16w8": Case(
        "chatglm", "ChatGLM_v3", "float32", 10000.0, weight_type="uint8", group_size=64
    ),
    "chatglm4": Case("chatglm", "ChatGLM_v4", "float16", 10000.0, rope_ratio=500.0),
}  # fmt: skip


def config_of(case: Case) -> dict[str, Any]:
    """config.json of the model, in its family's own words."""
    common = {
        "model_type": case.model_type,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "tie_word_embeddings": case.tied,
    }
    if case.model_type == "chatglm":
        return {
            **common,
            "architectures": ["ChatGLMModel"],
            "model_type": case.dashinfer_type,
            "ffn_hidden_size": INNER,
            "num_layers": case.num_layers,
            "multi_query_attention": True,
            "multi_query_group_num": KV_HEADS,
            "kv_channels": HEAD_DIM,
            "seq_length": 256,
            "padded_vocab_size": VOCAB,
            "layernorm_epsilon": 1e-5,
            "add_qkv_bias": True,
            "rope_ratio": case.rope_ratio,
        }
    sizes = {
        **common,
        "num_hidden_layers": case.num_layers,
        "max_position_embeddings": 256,
        "vocab_size": VOCAB,
    }
    if case.model_type == "qwen":
        return {
            **sizes,
            "architectures": ["QWenLMHeadModel"],
            "intermediate_size": 2 * INNER,
            "seq_length": 256,
            "layer_norm_epsilon": 1e-6,
            "rotary_emb_base": case.rope_theta,
            "use_dynamic_ntk": True,
            "use_logn_attn": True,
        }
    architectures = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
    return {
        **sizes,
        "architectures": [architectures[case.model_type]],
        "intermediate_size": INNER,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": case.rope_theta,
        "hidden_act": "silu",
    }


_Q, _KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
_LLAMA_LAYER = {
    "self_attn.q_proj.weight": (_Q, HIDDEN),
    "self_attn.k_proj.weight": (_KV, HIDDEN),
    "self_attn.v_proj.weight": (_KV, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, _Q),
    "mlp.gate_proj.weight": (INNER, HIDDEN),
    "mlp.up_proj.weight": (INNER, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INNER),
    "input_layernorm.weight": (HIDDEN,),
    "post_attention_layernorm.weight": (HIDDEN,),
}
_LAYERS = {
    "llama": _LLAMA_LAYER,
    "qwen2": {
        "self_attn.q_proj.weight": (_Q, HIDDEN),
        "self_attn.q_proj.bias": (_Q,),
        "self_attn.k_proj.weight": (_KV, HIDDEN),
        "self_attn.k_proj.bias": (_KV,),
        "self_attn.v_proj.weight": (_KV, HIDDEN),
        "self_attn.v_proj.bias": (_KV,),
        **_LLAMA_LAYER,
    },
    "qwen": {
        "ln_1.weight": (HIDDEN,),
        "attn.c_attn.weight": (3 * _Q, HIDDEN),
        "attn.c_attn.bias": (3 * _Q,),
        "attn.c_proj.weight": (HIDDEN, _Q),
        "ln_2.weight": (HIDDEN,),
        "mlp.w1.weight": (INNER, HIDDEN),
        "mlp.w2.weight": (INNER, HIDDEN),
        "mlp.c_proj.weight": (HIDDEN, INNER),
    },
    "chatglm": {
        "input_layernorm.weight": (HIDDEN,),
        "self_attention.query_key_value.weight": (_Q + 2 * _KV, HIDDEN),
        "self_attention.query_key_value.bias": (_Q + 2 * _KV,),
        "self_attention.dense.weight": (HIDDEN, _Q),
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.dense_h_to_4h.weight": (2 * INNER, HIDDEN),
        "mlp.dense_4h_to_h.weight": (HIDDEN, INNER),
    },
}
_OUTER = {
    "qwen": ("transformer.wte", "transformer.h", "transformer.ln_f", "lm_head"),
    "chatglm": (
        "transformer.embedding.word_embeddings", "transformer.encoder.layers",
        "transformer.encoder.final_layernorm", "transformer.output_layer",
    ),
}  # fmt: skip
_LLAMA_OUTER = ("model.embed_tokens", "model.layers", "model.norm", "lm_head")


def weights_of(case: Case) -> dict[str, np.ndarray]:
    """Random weights under Hugging Face's names; a tied head is not among them."""
    embedding, layers, norm, head = _OUTER.get(case.model_type, _LLAMA_OUTER)
    shapes = {f"{embedding}.weight": (VOCAB, HIDDEN), f"{norm}.weight": (HIDDEN,)}
    if not case.tied:
        shapes[f"{head}.weight"] = (VOCAB, HIDDEN)
    for layer in range(case.num_layers):
        for name, shape in _LAYERS[case.model_type].items():
            shapes[f"{layers}.{layer}.{name}"] = shape
    random = np.random.default_rng(7)
    return {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
