"""InstantQuant: q = round((w - min) / scale), scale = (max - min) / (2**bits - 1), by groups of K.

Pure array functions over blocks of rows of [N, K]; knows nothing of files, names or panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import ConversionError
from dashinfer_lab.quantize.scheme import GroupSize
from jit_kernels.panels import group_length
from jit_kernels.reference.quantize import group_codes, group_extremes

__all__ = [
    "QuantizedRows",
    "ScaleType",
    "dequantize",
    "fits_float16",
    "quantize_rows",
    "stored_grid",
]

ScaleType = type[np.float16] | type[np.float32]

_TINY = np.finfo(np.float32).smallest_subnormal
_LARGE = float(np.finfo(np.float32).max)

# Half a step is the error of rounding; 1/8 step is what float16 scales may add to it.
_ALLOWED_STEPS = np.float64(1 / 2 + 1 / 8)


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows of a weight as w = codes * scale + minimum.

    `codes` is uint8 [N, K], below 2**bits; `scale` and `minimum` are [N, G] of one dtype.
    """

    codes: NDArray[np.uint8]
    scale: NDArray[Any]
    minimum: NDArray[Any]


def quantize_rows(
    rows: NDArray[np.float32], group_size: GroupSize | int, scale_type: ScaleType, bits: int = 8
) -> QuantizedRows | None:
    """Quantise [N, K] rows, codes chosen against the scale and minimum as they are stored.

    A code has at most 8 `bits`. Returns None where `scale_type` is float16 and too coarse for some
    group: see `fits_float16`.
    Raises ConversionError for weights that are not finite or span more than float32 holds.
    """
    length, steps = group_length(rows.shape[1], group_size), (1 << bits) - 1
    grid = stored_grid(*group_extremes(rows, length), scale_type, bits)
    if grid is None:
        return None
    scale, minimum = (part.astype(np.float32) for part in grid)
    return QuantizedRows(group_codes(rows, length, scale, minimum, steps), *grid)


def stored_grid(
    low: NDArray[np.float32], high: NDArray[np.float32], scale_type: ScaleType, bits: int
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return scale and minimum of groups from `low` to `high`, as they are stored.

    Returns None and raises as `quantize_rows` does.
    """
    steps = (1 << bits) - 1
    scale = _scale(low, high, steps)
    if scale_type is np.float16 and not fits_float16(low, high, scale, steps):
        return None
    with np.errstate(under="ignore"):
        return scale.astype(scale_type), low.astype(scale_type)


def dequantize(quantized: QuantizedRows, group_size: GroupSize | int) -> NDArray[np.float32]:
    """Return the [N, K] float32 weights that `quantized` stands for."""
    k = quantized.codes.shape[1]
    length = group_length(k, group_size)
    scale = np.repeat(quantized.scale.astype(np.float32), length, axis=1)[:, :k]
    minimum = np.repeat(quantized.minimum.astype(np.float32), length, axis=1)[:, :k]
    return quantized.codes.astype(np.float32) * scale + minimum


def fits_float16(
    low: NDArray[np.float32], high: NDArray[np.float32], scale: NDArray[np.float32], steps: int
) -> bool:
    """Say whether float16 scale and minimum add at most 1/8 step to the error in every group.

    Inside the range of the rounded grid the error is half a rounded step; beyond its ends, where
    codes are clipped, it is the distance to the end.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded_scale = scale.astype(np.float16).astype(np.float64)
        rounded_low = low.astype(np.float16).astype(np.float64)
        error = np.maximum(rounded_scale / 2, np.abs(rounded_low - low))
        np.maximum(error, high - (rounded_low + steps * rounded_scale), out=error)
    return bool(np.all(error <= _ALLOWED_STEPS * scale))


def _scale(low: NDArray[np.float32], high: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    """Return (high - low) / steps as float32, never too small to reach `high`."""
    span = high.astype(np.float64) - low
    if not np.all(span <= _LARGE):  # false for NaN as well
        raise ConversionError(
            "a group holds weights that are not finite or span more than float32 can hold"
        )
    exact = span / steps
    with np.errstate(under="ignore"):
        scale = exact.astype(np.float32)
    # Only among subnormal numbers can rounding lose more than a small part of a step.
    lost = (exact - scale) * steps > scale / 2
    return np.where(lost, scale + _TINY, scale)
