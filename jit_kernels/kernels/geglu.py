"""GeGLU: y = gelu(gate) · up, gelu(g) = g · (1 + tanh(√(2/π) (g + 0.044715 g³))) / 2.

Source: Shazeer 2020, eq. 5, with the form of gelu by tanh (Hendrycks & Gimpel 2016).

(1 + tanh(u)) / 2 is sigmoid(2u), which keeps small values exact to a rounding.
"""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, sigmoid
from jit_kernels.kernel import kernel
from jit_kernels.kernels.prepare import PreparedActivations, Values, prepare_rows
from jit_kernels.types import F32, I32, I64

__all__ = ["geglu_prepare"]

_TWICE_ROOT_2_BY_PI = 1.5957691216057308
_CUBIC = 0.044715


@kernel
def geglu_prepare(
    rows: Array[I64],
    gate: Array[F32],
    up: Array[F32],
    stride: Value[I64],
    n: Value[I64],
    activations: Array[I32],
    activation_scales: Array[F32],
    copy_bytes: Value[I64],
    scales_copy_bytes: Value[I64],
    *,
    form: str,
    group: int,
    row_tile: int,
) -> None:
    """Prepare gelu(gate) · up of [R, n] rows for a linear; both have the same `stride`."""
    target = PreparedActivations(
        activations, activation_scales, copy_bytes, scales_copy_bytes, form, group, row_tile
    )

    def row_of(row: Value[I64]) -> Values:
        gates, ups = gate + row * stride, up + row * stride
        return lambda k: _gelu(gates[k]) * ups[k]

    prepare_rows(target, rows[0], n, row_of)


def _gelu(x: Value[F32]) -> Value[F32]:
    """x · sigmoid(2u): every product and sum as `reference.geglu` has it."""
    return x * sigmoid((x * x * _CUBIC + 1.0) * x * _TWICE_ROOT_2_BY_PI)
