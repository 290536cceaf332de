"""Gather: y[r] = x[row_indices[r]]; rows that nothing further is asked of are left behind."""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, loop, vectorized
from jit_kernels.kernel import kernel, worker
from jit_kernels.types import F32, I32, I64

__all__ = ["gather_rows"]


@kernel
def gather_rows(
    rows: Array[I64],
    x: Array[F32],
    x_stride: Value[I64],
    row_indices: Array[I32],
    n: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
) -> None:
    """Copy as many rows [n] of `x` as `rows` says into `out`, elsewhere in memory."""
    for row in loop(*worker().share(rows[0])):
        source, target = x + row_indices[row].to(I64) * x_stride, out + row * out_stride
        for k in vectorized(n):
            target[k] = source[k]
