"""Soft cap in NumPy: `softcap` in float64, `softcap_bits` with the kernel's roundings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import tanh

__all__ = ["softcap", "softcap_bits"]


def softcap(x: NDArray[np.float32], cap: float) -> NDArray[np.float64]:
    """c · tanh(x / c)."""
    return cap * np.tanh(x.astype(np.float64) / cap)


def softcap_bits(x: NDArray[np.float32], cap: float) -> NDArray[np.float32]:
    """The same in float32."""
    return tanh(x / np.float32(cap)) * np.float32(cap)
