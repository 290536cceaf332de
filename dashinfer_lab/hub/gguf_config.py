"""GGUF metadata in Hugging Face's spelling; reads no file, and knows no names of tensors.

Source: llama.cpp's converters read backwards, and what its loader takes where a key is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.config_values import mapping_of
from dashinfer_lab.hub.gguf_architectures import gguf_architecture
from dashinfer_lab.hub.gguf_rope import decimal, rope_parameters

__all__ = [
    "head_counts",
    "hugging_face_config",
    "required_text",
    "token_text",
]

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
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
_EXPERT_SIZES = {
    "moe_intermediate_size": ("ffn_gate_exps", 1),
    "shared_expert_intermediate_size": ("ffn_gate_shexp", 0),
}
"""Sizes that early files do not state: the axis of a tensor that has them."""
_BIAS_KEYS = ("attention_bias", "qkv_bias")

# Keys that change the numbers, and the values under which they change nothing.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attention.temperature_scale": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "expert_gating_func": (0, 1),
    "expert_group_count": (0, 1),
    "expert_shared_count": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
    "leading_dense_block_count": (0,),
    "logit_scale": (0.0, 1.0),
    "nextn_predict_layers": (0,),
    "residual_scale": (0.0, 1.0),
    "rope.dimension_sections": ([], [0, 0, 0, 0]),
}
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
"""The Gemmas whose scores are scaled by another size than the head's."""
_LAYERS_OF_BAICHUAN_13B = 40


def required_text(metadata: Mapping[str, object], key: str) -> str:
    """Return the text stored under `key`. Raises CheckpointError where there is none."""
    value = metadata.get(key)
    if not isinstance(value, str):
        raise CheckpointError(f"the GGUF metadata has no text under {key!r}: found {value!r}")
    return value


def hugging_face_config(
    metadata: Mapping[str, object],
    tensors: Mapping[str, tuple[int, ...]],
    rope_factors: Mapping[str, NDArray[np.float32]] = MappingProxyType({}),
) -> dict[str, object]:
    """Build config.json's contents from metadata and the shapes of the GGUF tensors.

    What is absent stays absent, so that `model_config` can name it. `rope_factors`: see
    `rope_parameters`. Raises CheckpointError for metadata without the epsilon of the norms, whose
    default would be another model's.
    """
    architecture = required_text(metadata, "general.architecture")
    _refuse_unknown(architecture, metadata)
    kept = gguf_architecture(architecture)
    attention_bias = _any_bias(tensors, ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"))
    config: dict[str, object] = {
        "architectures": [kept.hugging_face],
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in tensors,
        **dict.fromkeys(_BIAS_KEYS, attention_bias),
        "mlp_bias": _any_bias(tensors, ("ffn_gate", "ffn_up", "ffn_down")),
    }
    for ours, theirs in _SIZES.items():
        value = metadata.get(f"{architecture}.{ours}")
        if value is not None:
            config[theirs] = decimal(value)
    if config.get("rms_norm_eps") is None:
        raise CheckpointError(
            f"the GGUF metadata has no {architecture}.attention.layer_norm_rms_epsilon: get the "
            "file again"
        )
    if "token_embd.weight" in tensors:
        config["vocab_size"] = tensors["token_embd.weight"][0]
    for key, (stem, axis) in _EXPERT_SIZES.items():
        shape = tensors.get(f"blk.0.{stem}.weight", ())
        if key not in config and len(shape) > axis:
            config[key] = shape[axis]
    if kept.with_experts and config.get("num_experts"):
        config["architectures"] = [kept.with_experts]
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    if config.get("head_dim") is None:
        config["head_dim"] = _quotient(config, "hidden_size", "num_attention_heads")
    if config.get("sliding_window") == 0:
        config["sliding_window"] = None
    rope = rope_parameters(architecture, metadata, config["head_dim"], rope_factors)
    config |= {"rope_parameters": rope, **kept.settings}
    config |= _peculiarities(architecture, metadata, config)
    for token in ("bos", "eos"):
        token_id = metadata.get(f"tokenizer.ggml.{token}_token_id")
        if token_id is not None:
            config[f"{token}_token_id"] = token_id
    return config


def head_counts(metadata: Mapping[str, object]) -> tuple[object, object]:
    """Return the numbers of attention heads and of key-value heads, None where there is none."""
    prefix = f"{metadata.get('general.architecture')}.attention"
    num_heads = metadata.get(f"{prefix}.head_count")
    return num_heads, metadata.get(f"{prefix}.head_count_kv", num_heads)


def _refuse_unknown(architecture: str, metadata: Mapping[str, object]) -> None:
    for key, neutral in _NEUTRAL.items():
        value = metadata.get(f"{architecture}.{key}")
        if value is not None and value not in neutral:
            raise UnsupportedModelError(
                f"{architecture}.{key} {value!r:.200} of the GGUF metadata is not supported. Use "
                "the model's safetensors checkpoint."
            )
    lengths = [metadata.get(f"{architecture}.attention.{it}_length") for it in ("key", "value")]
    if None not in lengths and lengths[0] != lengths[1]:
        raise UnsupportedModelError(
            f"{architecture}.attention.key_length {lengths[0]!r:.100} and value_length "
            f"{lengths[1]!r:.100} differ, which is not supported"
        )


def _peculiarities(
    architecture: str, metadata: Mapping[str, object], config: Mapping[str, object]
) -> dict[str, object]:
    """Return what some architectures have otherwise, or leave unsaid."""
    if architecture in _LAYERS_OF_27B:
        return _gemma(architecture, metadata, config)
    if architecture == "baichuan":
        return _baichuan(config)
    return {}


def _gemma(
    architecture: str, metadata: Mapping[str, object], config: Mapping[str, object]
) -> dict[str, object]:
    is_27b = config.get("num_hidden_layers") == _LAYERS_OF_27B[architecture]
    by_width = _quotient(config, "hidden_size", "num_attention_heads")
    changes: dict[str, object] = {
        "query_pre_attn_scalar": by_width if is_27b else config["head_dim"]
    }
    pattern = metadata.get(f"{architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, list):
        slides = cast("list[object]", pattern)
        changes["layer_types"] = [
            "sliding_attention" if each else "full_attention" for each in slides
        ]
    elif pattern is not None:
        changes["sliding_window_pattern"] = pattern
    if architecture == "gemma3":
        local = decimal(metadata.get("gemma3.rope.freq_base_swa", 10000.0))
        changes["rope_parameters"] = {
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        }
        if config.get("sliding_window") is None:  # then all layers are of the other kind
            changes |= {"sliding_window": None, "sliding_window_pattern": 1}
    return changes


def _baichuan(config: Mapping[str, object]) -> dict[str, object]:
    """Baichuan 13B has ALiBi and says so by the name of its length; neither states an angle."""
    changes: dict[str, object] = {}
    if config.get("num_hidden_layers") == _LAYERS_OF_BAICHUAN_13B:
        length = config.get("max_position_embeddings")
        changes = {"max_position_embeddings": None, "model_max_length": length}
    usual = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    if {**usual, **mapping_of(config, "rope_parameters")} == usual:
        changes["rope_parameters"] = None
    if config.get("num_key_value_heads") == config.get("num_attention_heads"):
        changes["head_dim"] = None
    return changes


def _quotient(config: Mapping[str, object], total: str, parts: str) -> int | None:
    whole, count = config.get(total), config.get(parts)
    if isinstance(whole, int) and isinstance(count, int) and count > 0:
        return whole // count
    return None


def _any_bias(tensors: Collection[str], stems: tuple[str, ...]) -> bool:
    return any(f"blk.0.{stem}.bias" in tensors for stem in stems)


def token_text(metadata: Mapping[str, object], token: str) -> str | None:
    """Return the text of the special token `token`, such as "bos", where the model names one.

    Raises CheckpointError.
    """
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
