"""Opens the families' tiny checkpoints in transformers; one it has no class for is re-laid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.model.family_cases import HEAD_DIM, HEADS, KV_HEADS, FamilyCase
from tests.oracle.baichuan import add_alibi, baichuan_as_llama
from tests.oracle.qwen import add_logn, qwen_as_qwen2
from tests.oracle.relaid import written

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["transformers_model"]


def transformers_model(case: FamilyCase, directory: Path) -> PreTrainedModel:
    """Write the checkpoint into `directory`; open it in float32, every tensor used."""
    from transformers import AutoModelForCausalLM

    case.write(directory)
    relay = _RELAID.get(case.config["architectures"][0])
    if relay is not None:
        directory = relay(case, directory / "relaid")
    model, report = AutoModelForCausalLM.from_pretrained(
        directory,
        dtype="float32",
        attn_implementation="eager",
        experts_implementation="eager",  # its grouped product takes multiples of 16 bytes alone
        output_loading_info=True,
    )
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise ValueError(f"{case.name}: transformers expects other tensors: {report}")
    if "z_loss_weight" in case.config:
        add_alibi(model)
    if case.config.get("use_logn_attn"):
        add_logn(model, int(str(case.config["seq_length"])))
    return model.eval()


_LLAMA_NAMES = {
    "tok_embeddings": "embed_tokens",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w3": "mlp.up_proj",
    "feed_forward.w2": "mlp.down_proj",
    "output.weight": "lm_head.weight",
}


def _as_llama(case: FamilyCase, directory: Path) -> Path:
    """Lay InternLM 2 out as a Llama: wqkv holds, for each key head, its queries, key and value."""
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in case.tensors().items():
        if "attention.wqkv" not in name:
            for theirs, llamas in _LLAMA_NAMES.items():
                name = name.replace(theirs, llamas)
            tensors[name] = tensor
            continue
        grouped = tensor.reshape(KV_HEADS, HEADS // KV_HEADS + 2, HEAD_DIM, *tensor.shape[1:])
        parts = {"q": grouped[:, :-2], "k": grouped[:, -2], "v": grouped[:, -1]}
        for part, rows in parts.items():
            target = name.replace("attention.wqkv", f"self_attn.{part}_proj")
            tensors[target] = np.ascontiguousarray(rows.reshape(-1, *tensor.shape[1:]))
    config = case.whole_config()
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    config["attention_bias"] = config.pop("bias")
    return written(config, tensors, directory)


_GLM_NAMES = {
    "transformer.embedding.word_embeddings": "model.embed_tokens",
    "transformer.encoder.layers": "model.layers",
    "transformer.encoder.final_layernorm": "model.norm",
    "transformer.output_layer": "lm_head",
    "self_attention.dense": "self_attn.o_proj",
    "dense_h_to_4h": "gate_up_proj",
    "dense_4h_to_h": "down_proj",
}


def _as_glm(case: FamilyCase, directory: Path) -> Path:
    """Lay ChatGLM out as transformers does GLM: the same decoder, q, k and v apart."""
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in case.tensors().items():
        for theirs, glms in _GLM_NAMES.items():
            name = name.replace(theirs, glms)
        if "query_key_value" not in name:
            tensors[name] = tensor
            continue
        ends = [HEADS * HEAD_DIM, (HEADS + KV_HEADS) * HEAD_DIM]
        for part, rows in zip("qkv", np.split(tensor, ends), strict=True):
            target = name.replace("self_attention.query_key_value", f"self_attn.{part}_proj")
            tensors[target] = np.ascontiguousarray(rows)
    stated = case.whole_config()
    ratio, is_second = stated["rope_ratio"], stated["model_type"] == "ChatGLM_v2"
    rope: dict[str, object] = {"rope_type": "default", "partial_rotary_factor": 0.5}
    if is_second:  # it divides positions, later ones multiply the base
        rope |= {"rope_type": "linear", "factor": ratio, "rope_theta": 10000.0}
    else:
        rope |= {"rope_theta": 10000.0 * ratio}
    config = {
        "architectures": ["GlmForCausalLM"],
        "model_type": "glm",
        "vocab_size": stated["padded_vocab_size"],
        "hidden_size": stated["hidden_size"],
        "intermediate_size": stated["ffn_hidden_size"],
        "num_hidden_layers": stated["num_layers"],
        "num_attention_heads": stated["num_attention_heads"],
        "num_key_value_heads": stated["multi_query_group_num"],
        "head_dim": stated["kv_channels"],
        "max_position_embeddings": stated["seq_length"],
        "rms_norm_eps": stated["layernorm_epsilon"],
        "attention_bias": stated["add_qkv_bias"],
        "rope_parameters": rope,
        "pad_token_id": 0,
    }
    return written(config, tensors, directory)


_RELAID = {
    "InternLM2ForCausalLM": _as_llama,
    "ChatGLMModel": _as_glm,
    "BaichuanForCausalLM": baichuan_as_llama,
    "QWenLMHeadModel": qwen_as_qwen2,
}
