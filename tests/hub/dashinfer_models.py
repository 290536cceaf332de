"""Tiny models as DashInfer 1.3.0 was given them; NumPy alone, for it runs there, too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 72, 2, 1, 16, 41


class Case(NamedTuple):
    """A serialised model: which type, element type, and how its linear weights were quantised."""

    model_type: str
    dashinfer_type: str
    data_type: str
    rope_theta: float
    num_layers: int = 1
    tied: bool = False
    weight_type: str | None = None
    group_size: int | None = None


CASES = {
    "llama": Case("llama", "LLaMA_v3", "float32", 500000.0),
    "qwen2": Case("qwen2", "Qwen_v20", "bfloat16", 1000000.0, num_layers=2, tied=True),
    "llama_a16w8": Case(
        "llama", "LLaMA_v2", "float32", 10000.0, weight_type="uint8", group_size=64
    ),
    "qwen2_a16w8": Case("qwen2", "Qwen_v15", "float32", 10000.0, weight_type="int8"),
}


def config_of(case: Case) -> dict[str, Any]:
    """config.json of the model."""
    architectures = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
    return {
        "architectures": [architectures[case.model_type]],
        "model_type": case.model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": case.num_layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 256,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5,
        "rope_theta": case.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": case.tied,
    }


def weights_of(case: Case) -> dict[str, np.ndarray]:
    """Random weights under Hugging Face's names; a tied head is not among them."""
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not case.tied:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    for layer in range(case.num_layers):
        prefix = f"model.layers.{layer}"
        for part, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            shapes[f"{prefix}.self_attn.{part}_proj.weight"] = (rows * HEAD_DIM, HIDDEN)
            if case.model_type == "qwen2":
                shapes[f"{prefix}.self_attn.{part}_proj.bias"] = (rows * HEAD_DIM,)
        shapes[f"{prefix}.self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
        shapes[f"{prefix}.mlp.gate_proj.weight"] = (INNER, HIDDEN)
        shapes[f"{prefix}.mlp.up_proj.weight"] = (INNER, HIDDEN)
        shapes[f"{prefix}.mlp.down_proj.weight"] = (HIDDEN, INNER)
        shapes[f"{prefix}.input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (HIDDEN,)
    random = np.random.default_rng(7)
    return {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
