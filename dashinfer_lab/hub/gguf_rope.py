"""Rotary embedding as GGUF states it, in Hugging Face's spelling; reads no file.

Llama 3's scaling is there as a tensor of factors by which frequencies are divided; it is the one
that Meta's four numbers give, or it is refused. LongRoPE's two sets are tensors, too. Source:
llama.cpp's convert_hf_to_gguf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError

__all__ = ["ROPE_FACTORS", "decimal", "rope_parameters"]

_LLAMA3, _SHORT, _LONG = (
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
)
ROPE_FACTORS = (_LLAMA3, _SHORT, _LONG)
"""Tensors by which GGUF expresses scaling; folded into the config, not weights."""

_LOW, _HIGH, _ORIGINAL_LENGTH = 1.0, 4.0, 8192
_ROUNDING = 1e-5  # the converter computes factors in float32


def rope_parameters(
    architecture: str,
    metadata: Mapping[str, object],
    head_dim: object,
    factors: Mapping[str, NDArray[np.float32]],
) -> dict[str, object]:
    """Return rope_parameters; `factors` are the values of those `ROPE_FACTORS` that are there.

    Raises CheckpointError for YaRN without a factor and one set of LongRoPE without the other,
    UnsupportedModelError for factors that are not Llama 3's and for settings that config.json has
    no words for.
    """
    prefix = f"{architecture}.rope"
    legacy = metadata.get(f"{prefix}.scale_linear", 1.0)
    stated = metadata.get(f"{prefix}.scaling.factor", legacy)
    unsaid = "none" if stated in (0.0, 1.0) else "linear"  # as llama.cpp takes a missing type
    scaling = metadata.get(f"{prefix}.scaling.type", unsaid)
    theta = decimal(metadata.get(f"{prefix}.freq_base", 10000.0))
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": theta}
    gain = metadata.get(f"{prefix}.scaling.attn_factor", 0.0)
    if _SHORT in factors or _LONG in factors:
        rope |= _longrope(factors, metadata.get(f"{prefix}.scaling.original_context_length"), gain)
    elif gain not in (0.0, 1.0):
        raise UnsupportedModelError(
            f"{prefix}.scaling.attn_factor {gain!r:.100} of the GGUF metadata is not supported"
        )
    elif _LLAMA3 in factors:
        rope |= _llama3(factors[_LLAMA3], theta)
    elif scaling != "none":
        factor = decimal(stated)
        rope |= {"rope_type": scaling, "factor": factor}
        if scaling == "yarn":
            rope |= _yarn(metadata, f"{prefix}.scaling")
    turned = metadata.get(f"{prefix}.dimension_count")
    if isinstance(turned, int) and isinstance(head_dim, int) and head_dim > 0:
        rope["partial_rotary_factor"] = turned / head_dim
    return rope


def decimal(value: object) -> Any:
    """Turn a number kept in 32 bits into the decimal a person wrote: 1e-05, not 9.99999975e-06."""
    if not isinstance(value, float) or abs(value) > float(np.finfo(np.float32).max):
        return value
    return float(str(np.float32(value)))


def _yarn(metadata: Mapping[str, object], prefix: str) -> dict[str, object]:
    stated = {key.removeprefix(f"{prefix}.") for key in metadata if key.startswith(f"{prefix}.")}
    strange = sorted(stated - {"type", "factor", "original_context_length", "finetuned"})
    if strange:
        raise UnsupportedModelError(f"{prefix}.{strange[0]} of the GGUF metadata is not supported")
    if not {"factor", "original_context_length"} <= stated:
        raise CheckpointError(
            f"the GGUF metadata states YaRN without {prefix}.factor and original_context_length"
        )
    original = metadata[f"{prefix}.original_context_length"]
    return {"original_max_position_embeddings": original}


def _longrope(
    factors: Mapping[str, NDArray[np.float32]], original: object, gain: object
) -> dict[str, object]:
    absent = [name for name in (_SHORT, _LONG) if name not in factors]
    if absent or original is None:
        lacking = absent[0] if absent else "rope.scaling.original_context_length"
        raise CheckpointError(f"the GGUF file states LongRoPE without {lacking}: get it again")
    sets = {"short_factor": factors[_SHORT], "long_factor": factors[_LONG]}
    return {
        "rope_type": "longrope",
        "original_max_position_embeddings": original,
        **({} if gain == 0.0 else {"attention_factor": decimal(gain)}),
        **{key: [decimal(float(it)) for it in values.ravel()] for key, values in sets.items()},
    }


def _llama3(factors: NDArray[np.float32], theta: Any) -> dict[str, object]:
    """Return the numbers that give `factors`, one a pair."""
    factor = decimal(float(factors[-1])) if factors.ndim == 1 and len(factors) else 0
    if isinstance(theta, int | float) and theta > 0 and factor >= 1:
        frequency = float(theta) ** -(np.arange(len(factors)) / len(factors))
        kept = (_ORIGINAL_LENGTH * frequency / (2 * np.pi) - _LOW) / (_HIGH - _LOW)
        kept = np.clip(kept, 0, 1)
        if np.allclose(factors, 1 / (kept + (1 - kept) / factor), rtol=_ROUNDING, atol=0):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": _LOW,
                "high_freq_factor": _HIGH,
                "original_max_position_embeddings": _ORIGINAL_LENGTH,
            }
    raise UnsupportedModelError(
        f"{_LLAMA3} of the GGUF file holds other factors than Llama 3's, up to "
        f"{factors.max(initial=0):.3g}. Use the model's safetensors checkpoint."
    )
