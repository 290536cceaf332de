"""RMSNorm in NumPy: `rmsnorm` in float64, `rmsnorm_bits` with the kernel's additions in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import tree_sum_of_squares

__all__ = ["rmsnorm", "rmsnorm_add_bits", "rmsnorm_bits"]


def rmsnorm(x: NDArray[np.float32], weight: NDArray[np.float32], eps: float) -> NDArray[np.float64]:
    """Rows of `x` [..., n] over the root of their mean square, times `weight`."""
    wide = x.astype(np.float64)
    mean_square = np.mean(wide * wide, axis=-1, keepdims=True)
    return wide / np.sqrt(mean_square + np.float32(eps)) * weight


def rmsnorm_bits(
    x: NDArray[np.float32], weight: NDArray[np.float32], eps: float
) -> NDArray[np.float32]:
    """The same in float32, every operation where the kernel has it."""
    square_sum = tree_sum_of_squares(x)[..., None]
    scale = np.float32(1) / np.sqrt(square_sum / np.float32(x.shape[-1]) + np.float32(eps))
    return x * scale * weight


def rmsnorm_add_bits(
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    eps: float,
    residual: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Normalised rows added to those of `residual`, with the kernel's bits."""
    return residual + rmsnorm_bits(x, weight, eps)
