"""config.json to `ModelConfig`: sizes checked, what cannot be run refused by name.

Reads the spellings of transformers 4 (`rope_theta`, `rope_scaling`, `torch_dtype`) and of
transformers 5 (`rope_parameters`, `dtype`). Knows no weights. Defaults, where a key is absent or
null, are those of transformers' LlamaConfig: num_key_value_heads = num_attention_heads,
head_dim = hidden_size / num_attention_heads, rms_norm_eps 1e-6, max_position_embeddings 2048,
rope theta 10000, hidden_act silu, no biases, head not tied.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import cast

from dashinfer_lab.config import ModelConfig, RopeConfig
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError

__all__ = ["model_config"]

_ARCHITECTURES = {"LlamaForCausalLM": "llama"}
_SIZE_LIMIT = 1 << 24
_LAYER_LIMIT = 1 << 12
_ROPE_TABLE_LIMIT = 1 << 27  # elements: a million positions with heads of 128
_NO_SCALING = ("default", "none")


def model_config(config: Mapping[str, object]) -> ModelConfig:
    """Return the architecture that a config.json describes.

    Raises CheckpointError for sizes that are missing or make no sense and for keys that
    contradict one another, UnsupportedModelError for what this version cannot run.
    """
    model_type = _model_type(config)
    _refuse_unsupported(config)
    hidden_size = _size(config, "hidden_size")
    num_heads = _size(config, "num_attention_heads")
    num_kv_heads = _size(config, "num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"num_attention_heads {num_heads} is not divisible by num_key_value_heads "
            f"{num_kv_heads}"
        )
    head_dim = _head_dim(config, hidden_size, num_heads)
    context_length = _size(config, "max_position_embeddings", 2048)
    if context_length * head_dim > _ROPE_TABLE_LIMIT:
        raise UnsupportedModelError(
            f"max_position_embeddings {context_length} with heads of {head_dim} needs too large a "
            f"table of positions; lower it to {_ROPE_TABLE_LIMIT // head_dim} or less"
        )
    return ModelConfig(
        model_type=model_type,
        vocab_size=_size(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_size(config, "intermediate_size"),
        num_layers=_size(config, "num_hidden_layers", limit=_LAYER_LIMIT),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=_positive(config, "rms_norm_eps", 1e-6),
        context_length=context_length,
        rope=_rope(config),
        tie_word_embeddings=_switch(config, "tie_word_embeddings"),
        attention_bias=_switch(config, "attention_bias"),
        mlp_bias=_switch(config, "mlp_bias"),
    )


def _model_type(config: Mapping[str, object]) -> str:
    """Return the model type on which architectures and model_type agree."""
    found = config.get("architectures")
    names = cast("list[object]", found) if isinstance(found, list) else []
    stated = config.get("model_type")
    supported = ", ".join(_ARCHITECTURES)
    if not names and stated in _ARCHITECTURES.values():
        return str(stated)
    if len(names) != 1 or str(names[0]) not in _ARCHITECTURES:
        named = names or [stated]
        raise UnsupportedModelError(
            f"architecture {', '.join(map(str, named))} is not supported; supported: {supported}"
        )
    model_type = _ARCHITECTURES[str(names[0])]
    if stated is not None and stated != model_type:
        raise UnsupportedModelError(
            f"architecture {names[0]} with model_type {stated!r} is not supported; supported: "
            f"{supported} with model_type {model_type!r}"
        )
    return model_type


def _refuse_unsupported(config: Mapping[str, object]) -> None:
    """Refuse what would change the numbers if it were ignored."""
    refusals = {
        "quantization_config": config.get("quantization_config") is not None,
        "sliding_window": config.get("sliding_window") is not None,
        "pretraining_tp": config.get("pretraining_tp") not in (None, 1),
        "hidden_act": config.get("hidden_act") not in (None, "silu", "swish"),
    }
    for key, refused in refusals.items():
        if refused:
            raise UnsupportedModelError(
                f"{key} {config[key]!r:.200} is not supported for this architecture. Use a "
                "checkpoint without it."
            )
    dtypes = {str(config[key]) for key in ("dtype", "torch_dtype") if config.get(key) is not None}
    if len(dtypes) > 1:
        raise CheckpointError(f"dtype and torch_dtype differ: {', '.join(sorted(dtypes))}")


def _head_dim(config: Mapping[str, object], hidden_size: int, num_heads: int) -> int:
    if config.get("head_dim") is None and hidden_size % num_heads:
        raise CheckpointError(
            f"hidden_size {hidden_size} is not divisible by num_attention_heads {num_heads}, and "
            "there is no head_dim"
        )
    head_dim = _size(config, "head_dim", hidden_size // num_heads)
    if head_dim % 2:
        raise UnsupportedModelError(f"head_dim {head_dim} is odd; rotary embedding turns pairs")
    return head_dim


def _rope(config: Mapping[str, object]) -> RopeConfig:
    """Read both spellings; where both are given they must agree."""
    parameters = _mapping(config, "rope_parameters")
    for key in ("rope_parameters", "rope_scaling"):
        source = _mapping(config, key)
        kinds = [source[name] for name in ("rope_type", "type") if source.get(name) is not None]
        scaled = any(kind not in _NO_SCALING for kind in kinds)
        if scaled or (not kinds and "factor" in source):
            kind = kinds[0] if kinds else "without a type"
            raise UnsupportedModelError(
                f"rope scaling {kind!r} ({key}) is not supported; only the default rotary "
                "embedding is"
            )
        if any(isinstance(value, Mapping) for value in source.values()):
            raise UnsupportedModelError(f"{key} by layer type is not supported: {source!r:.200}")
    partial = _agreed(config, parameters, "partial_rotary_factor")
    if partial not in (None, 1):
        raise UnsupportedModelError(f"partial_rotary_factor {partial!r} is not supported")
    theta = _agreed(config, parameters, "rope_theta")
    return RopeConfig(theta=_positive({"rope_theta": theta}, "rope_theta", 10000.0))


def _agreed(config: Mapping[str, object], parameters: Mapping[str, object], key: str) -> object:
    values = [source[key] for source in (config, parameters) if source.get(key) is not None]
    if len(values) == 2 and values[0] != values[1]:
        raise CheckpointError(f"{key} is {values[0]!r}, but {values[1]!r} in rope_parameters")
    return values[0] if values else None


def _mapping(config: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{key} is {value!r:.100}, expected an object")
    return cast("Mapping[str, object]", value)


def _size(
    config: Mapping[str, object], key: str, default: int | None = None, limit: int = _SIZE_LIMIT
) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise CheckpointError(f"the model's config has no {key}")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise CheckpointError(
            f"{key} is {value!r:.100} in the model's config; expected an integer from 1 to {limit}"
        )
    return value


def _positive(config: Mapping[str, object], key: str, default: float) -> float:
    value = config.get(key)
    if value is None:
        return default
    # An integer may be too large for a float.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= sys.float_info.max
    ):
        raise CheckpointError(f"{key} is {value!r:.100}; expected a positive finite number")
    return float(value)


def _switch(config: Mapping[str, object], key: str) -> bool:
    value = config.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise CheckpointError(
            f"{key} is {value!r:.100} in the model's config; expected true or false"
        )
    return value
