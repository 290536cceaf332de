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
from jit_kernels.panels import group_length, num_groups

__all__ = ["QuantizedRows", "ScaleType", "dequantize", "fits_float16", "quantize_rows"]

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
    low, high = _extremes(rows, length)
    scale = _scale(low, high, steps)
    if scale_type is np.float16 and not fits_float16(low, high, scale, steps):
        return None
    with np.errstate(under="ignore"):
        stored_scale, stored_low = scale.astype(scale_type), low.astype(scale_type)
    grid = stored_scale.astype(np.float32), stored_low.astype(np.float32)
    codes = _codes(rows, length, *grid, steps)
    return QuantizedRows(codes, stored_scale, stored_low)


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


def _extremes(
    rows: NDArray[np.float32], length: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the minimum and maximum of every group, [N, G] each."""
    n, k = rows.shape
    whole = k // length
    low = np.empty((n, num_groups(k, length)), np.float32)
    high = np.empty_like(low)
    groups = rows[:, : whole * length].reshape(n, whole, length)
    low[:, :whole], high[:, :whole] = _extremes_of_groups(groups)
    if k % length:
        np.min(rows[:, whole * length :], axis=1, out=low[:, whole])
        np.max(rows[:, whole * length :], axis=1, out=high[:, whole])
    return low, high


def _extremes_of_groups(
    groups: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the minimum and maximum of [N, G, length] along its last axis.

    NumPy is slow along short rows: transposed first, four floats at a time, it takes a third.
    """
    n, num, length = groups.shape
    if length % 4:
        return groups.min(axis=2), groups.max(axis=2)
    quads = np.ascontiguousarray(groups).view(np.complex128).reshape(n * num, length // 4)
    lanes = np.ascontiguousarray(quads.T).view(np.float32)

    def folded(fold: np.ufunc) -> NDArray[np.float32]:
        quarters = fold.reduce(lanes, axis=0).reshape(n * num, 4)
        return fold.reduce(np.ascontiguousarray(quarters.T), axis=0).reshape(n, num)

    return folded(np.minimum), folded(np.maximum)


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


def _codes(
    rows: NDArray[np.float32],
    length: int,
    scale: NDArray[np.float32],
    minimum: NDArray[np.float32],
    most: int,
) -> NDArray[np.uint8]:
    """Return the codes [N, K], 0 to `most`, on the grid of `scale` and `minimum`, [N, G]."""
    n, k = rows.shape
    whole = k // length
    divisor = np.where(scale == 0, np.float32(1), scale)
    codes = np.empty((n, k), np.uint8)
    groups = rows[:, : whole * length].reshape(n, whole, length)
    parts = [(groups, slice(0, whole), codes[:, : whole * length])]
    if k % length:
        parts.append(
            (rows[:, None, whole * length :], slice(whole, None), codes[:, whole * length :])
        )
    for values, columns, out in parts:
        steps = values - minimum[:, columns, None]
        np.divide(steps, divisor[:, columns, None], out=steps)
        np.rint(steps, out=steps)
        np.clip(steps, 0, most, out=steps)
        out[...] = steps.reshape(out.shape)
    return codes
