"""GeGLU in NumPy: `geglu` in float64, `geglu_bits` with the kernel's roundings."""

from __future__ import annotations

from math import pi

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import sigmoid

__all__ = ["geglu", "geglu_bits"]

_CUBIC = np.float32(0.044715)
_TWICE_ROOT = np.float32(2 * (2 / pi) ** 0.5)


def geglu(gate: NDArray[np.float32], up: NDArray[np.float32]) -> NDArray[np.float64]:
    """gelu(gate) · up, gelu by its tanh form (Hendrycks & Gimpel 2016)."""
    wide = gate.astype(np.float64)
    inner = (2 / pi) ** 0.5 * (wide + 0.044715 * wide**3)
    return wide / 2 * (1 + np.tanh(inner)) * up


def geglu_bits(gate: NDArray[np.float32], up: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same in float32, as (gate · sigmoid(2u)) · up."""
    with np.errstate(invalid="ignore", over="ignore"):
        inner = (gate * gate * _CUBIC + np.float32(1)) * gate * _TWICE_ROOT
        return gate * sigmoid(inner) * up
