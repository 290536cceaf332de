"""The linear kernels in NumPy, bit for bit: the same operations in the same order, unhurried."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import fma

__all__ = ["finish_linear", "linear_float", "linear_groups"]

F32 = NDArray[np.float32]


def finish_linear(total: F32, bias: F32 | None = None, residual: F32 | None = None) -> F32:
    """Add bias, then residual."""
    if bias is not None:
        total = total + bias
    return total if residual is None else total + residual


def linear_float(x: F32, weight: F32) -> F32:
    """x [R, K] by weight [K, N]: one fma chain over k from 0 for each element."""
    total = np.zeros((x.shape[0], weight.shape[1]), np.float32)
    for k in range(x.shape[1]):
        total = fma(x[:, k, None], weight[k], total)
    return total


def linear_groups(
    q: NDArray[np.int16],
    activation_scales: F32,
    weight: NDArray[np.uint8],
    scale: F32,
    minimum: F32,
    group: int,
    groups_per_scale: int,
) -> F32:
    """q [R, K] int16, activation_scales [R, G, 2] by weight [K, N], scale and minimum [Gs, N]."""
    rows, k = q.shape
    y = np.zeros((rows, weight.shape[1]), np.float32)
    for number, begin in enumerate(range(0, k, group)):
        part = slice(begin, min(begin + group, k))
        dot = q[:, part].astype(np.int64) @ weight[part].astype(np.int64)
        a_scale, a_sum = (activation_scales[:, number, which, None] for which in (0, 1))
        w_scale, w_minimum = (array[number // groups_per_scale] for array in (scale, minimum))
        with np.errstate(invalid="ignore"):
            y = fma(dot.astype(np.float32) * a_scale, w_scale, y)
            y = fma(a_sum, w_minimum, y)
    return y
