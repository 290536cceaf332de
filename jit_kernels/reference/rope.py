"""Rotary embedding in NumPy, non-interleaved: the first half of a head pairs with the second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import fma

__all__ = ["rotate"]


def rotate(
    x: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Rotate heads [R, H, D] by angles given as cos, sin [R, D/2]; the kernel's bits."""
    lower, upper = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([fma(lower, cos, -(upper * sin)), fma(upper, cos, lower * sin)], -1)
