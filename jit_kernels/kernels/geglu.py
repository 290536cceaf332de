"""GeGLU: y = gelu(gate) · up, gelu(g) = g · (1 + tanh(√(2/π) (g + 0.044715 g³))) / 2.

Source: Shazeer 2020, eq. 5, with the form of gelu by tanh (Hendrycks & Gimpel 2016).

(1 + tanh(u)) / 2 is sigmoid(2u), which keeps small values exact to a rounding.
"""

from __future__ import annotations

from jit_kernels.dsl import Value, sigmoid
from jit_kernels.kernel import kernel
from jit_kernels.kernels.gated import GatedOperands
from jit_kernels.kernels.prepare import PreparedOperands
from jit_kernels.types import F32

__all__ = ["geglu_prepare"]

_TWICE_ROOT_2_BY_PI = 1.5957691216057308
_CUBIC = 0.044715


@kernel
def geglu_prepare(
    gated: GatedOperands, prepared: PreparedOperands, *, form: str, group: int, row_tile: int
) -> None:
    """Prepare gelu(gate) · up of [R, n] rows for a linear."""
    gated.prepare(prepared.rows(form, group, row_tile), _gelu)


def _gelu(x: Value[F32]) -> Value[F32]:
    """x · sigmoid(2u): every product and sum as `reference.geglu` has it."""
    return x * sigmoid((x * x * _CUBIC + 1.0) * x * _TWICE_ROOT_2_BY_PI)
