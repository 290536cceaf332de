"""SwiGLU: y = silu(gate) · up, silu(g) = g · sigmoid(g)   (Shazeer 2020, eq. 6)."""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, sigmoid
from jit_kernels.kernel import kernel
from jit_kernels.kernels.prepare import PreparedActivations, Values, prepare_rows
from jit_kernels.types import F32, I32, I64

__all__ = ["swiglu_prepare"]


@kernel
def swiglu_prepare(
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
    """Prepare silu(gate) · up of [R, n] rows for a linear; both have the same `stride`."""
    target = PreparedActivations(
        activations, activation_scales, copy_bytes, scales_copy_bytes, form, group, row_tile
    )

    def row_of(row: Value[I64]) -> Values:
        gates, ups = gate + row * stride, up + row * stride
        return lambda k: gates[k] * sigmoid(gates[k]) * ups[k]

    prepare_rows(target, rows[0], n, row_of)
