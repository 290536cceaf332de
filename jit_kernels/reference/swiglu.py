"""SwiGLU in NumPy: `swiglu` in float64, `swiglu_bits` with the kernel's roundings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import sigmoid

__all__ = ["swiglu", "swiglu_bits"]


def swiglu(gate: NDArray[np.float32], up: NDArray[np.float32]) -> NDArray[np.float64]:
    """silu(gate) · up."""
    wide = gate.astype(np.float64)
    return wide / (1 + np.exp(-wide)) * up


def swiglu_bits(gate: NDArray[np.float32], up: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same in float32: (gate · sigmoid(gate)) · up."""
    with np.errstate(invalid="ignore", over="ignore"):
        return gate * sigmoid(gate) * up
