"""Activations of gated units: silu of SwiGLU, gelu of GeGLU   (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from jit_kernels.dsl import Value, sigmoid
from jit_kernels.types import F32

__all__ = ["ACTIVATIONS", "Activation", "gelu", "silu"]

Activation = Callable[[Value[F32]], Value[F32]]
_TWICE_ROOT_2_BY_PI = 1.5957691216057308
_CUBIC = 0.044715


def silu(x: Value[F32]) -> Value[F32]:
    """x · sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Value[F32]) -> Value[F32]:
    """x · sigmoid(2u): every product and sum as `reference.geglu` has it."""
    return x * sigmoid((x * x * _CUBIC + 1.0) * x * _TWICE_ROOT_2_BY_PI)


ACTIVATIONS: Final[Mapping[str, Activation]] = {"swiglu": silu, "geglu": gelu}
