"""GGUF metadata and tensor names in Hugging Face's spelling; reads no file.

Source: llama.cpp's convert_hf_to_gguf and gguf-py's tensor_mapping, read backwards.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.gguf_rope import decimal, rope_parameters

__all__ = [
    "hugging_face_config",
    "hugging_face_name",
    "required_text",
    "token_text",
]

_OUTER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""Architectures of which GGUF keeps the tensors as Hugging Face names and shapes them."""

_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
}


def hugging_face_name(name: str) -> str:
    """Return the checkpoint's name of the GGUF tensor `name`; an unknown one stays as it is."""
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if layer and layer[2] in _LAYER_NAMES:
        return f"model.layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.{layer[3]}"
    stem, _, suffix = name.rpartition(".")
    return f"{_OUTER_NAMES[stem]}.{suffix}" if stem in _OUTER_NAMES else name


def required_text(metadata: Mapping[str, object], key: str) -> str:
    """Return the text stored under `key`. Raises CheckpointError where there is none."""
    value = metadata.get(key)
    if not isinstance(value, str):
        raise CheckpointError(f"the GGUF metadata has no text under {key!r}: found {value!r}")
    return value


def hugging_face_config(
    metadata: Mapping[str, object],
    tensors: Mapping[str, tuple[int, ...]],
    rope_factors: NDArray[np.float32] | None = None,
) -> dict[str, object]:
    """Build config.json's contents from metadata and the shapes of the GGUF tensors.

    What is absent stays absent, so that `model_config` can name it. `rope_factors`: see
    `rope_parameters`.
    """
    architecture = required_text(metadata, "general.architecture")
    config: dict[str, object] = {
        "architectures": [_ARCHITECTURES.get(architecture, architecture)],
        "model_type": architecture,
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": _any_bias(tensors, ("attn_q", "attn_k", "attn_v", "attn_output")),
        "mlp_bias": _any_bias(tensors, ("ffn_gate", "ffn_up", "ffn_down")),
    }
    for ours, theirs in _SIZES.items():
        value = metadata.get(f"{architecture}.{ours}")
        if value is not None:
            config[theirs] = decimal(value)
    if "token_embd.weight" in tensors:
        config["vocab_size"] = tensors["token_embd.weight"][0]
    if metadata.get(f"{architecture}.expert_count"):
        config |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    head_dim = config.get("head_dim") or _quotient(config, "hidden_size", "num_attention_heads")
    config["rope_parameters"] = rope_parameters(architecture, metadata, head_dim, rope_factors)
    for token in ("bos", "eos"):
        token_id = metadata.get(f"tokenizer.ggml.{token}_token_id")
        if token_id is not None:
            config[f"{token}_token_id"] = token_id
    return config


def _quotient(config: Mapping[str, object], total: str, parts: str) -> int | None:
    whole, count = config.get(total), config.get(parts)
    if isinstance(whole, int) and isinstance(count, int) and count > 0:
        return whole // count
    return None


def _any_bias(tensors: Collection[str], stems: tuple[str, ...]) -> bool:
    return any(f"blk.0.{stem}.bias" in tensors for stem in stems)


def token_text(metadata: Mapping[str, object], token: str) -> str | None:
    """Return the text of the special token `token`, such as "bos", where the model names one."""
    token_id = metadata.get(f"tokenizer.ggml.{token}_token_id")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(token_id, int) or not isinstance(tokens, list):
        return None
    if not 0 <= token_id < len(tokens):
        raise CheckpointError(
            f"the GGUF metadata names token {token_id} as {token!r}; the vocabulary has "
            f"{len(tokens)} tokens"
        )
    return str(tokens[token_id])
