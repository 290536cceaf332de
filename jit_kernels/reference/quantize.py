"""Extremes and codes of groups of weights in NumPy, bit for bit as the kernels make them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.panels import num_groups

__all__ = ["group_codes", "group_extremes"]


def group_extremes(
    rows: NDArray[np.float32], length: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the minimum and maximum of every group of [N, K], [N, G] each.

    Both are NaN where a weight of the group is not finite; a zero is +0.
    """
    n, k = rows.shape
    whole = k // length
    low = np.empty((n, num_groups(k, length)), np.float32)
    high = np.empty_like(low)
    groups = rows[:, : whole * length].reshape(n, whole, length)
    low[:, :whole], high[:, :whole] = _extremes_of_groups(groups)
    if k % length:
        np.min(rows[:, whole * length :], axis=1, out=low[:, whole])
        np.max(rows[:, whole * length :], axis=1, out=high[:, whole])
    finite = np.isfinite(low) & np.isfinite(high)
    low[~finite] = high[~finite] = np.nan
    return low + np.float32(0), high + np.float32(0)


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


def group_codes(
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
