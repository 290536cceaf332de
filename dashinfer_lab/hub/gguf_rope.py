"""Rotary embedding as GGUF states it, in Hugging Face's spelling; reads no file.

Llama 3's scaling is there as a tensor of factors by which frequencies are divided; it is the one
that Meta's four numbers give, or it is refused. Source: llama.cpp's convert_hf_to_gguf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError

__all__ = ["ROPE_FACTORS", "decimal", "rope_parameters"]

ROPE_FACTORS = "rope_freqs.weight"
"""Tensor by which GGUF expresses Llama 3's scaling; folded into the config, not a weight."""

_LOW, _HIGH, _ORIGINAL_LENGTH = 1.0, 4.0, 8192
_ROUNDING = 1e-5  # the converter computes factors in float32


def rope_parameters(
    architecture: str,
    metadata: Mapping[str, object],
    head_dim: object,
    factors: NDArray[np.float32] | None,
) -> dict[str, object]:
    """Return rope_parameters; `factors` are the values of `ROPE_FACTORS`, if it is there.

    Raises CheckpointError for YaRN without a factor, UnsupportedModelError for factors that are not
    Llama 3's and for settings of YaRN that config.json has no words for.
    """
    prefix = f"{architecture}.rope"
    scaling = metadata.get(f"{prefix}.scaling.type", "none")
    legacy = metadata.get(f"{prefix}.scale_linear", 1.0)
    if scaling == "none" and legacy != 1.0:
        scaling = "linear"
    theta = decimal(metadata.get(f"{prefix}.freq_base", 10000.0))
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": theta}
    if factors is not None:
        rope |= _llama3(factors, theta)
    elif scaling != "none":
        factor = decimal(metadata.get(f"{prefix}.scaling.factor", legacy))
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
        f"{ROPE_FACTORS} of the GGUF file holds other factors than Llama 3's, up to "
        f"{factors.max(initial=0):.3g}. Use the model's safetensors checkpoint."
    )
