"""RMSNorm on a residual: y = residual + x / sqrt(mean(x²) + eps) · weight   (Gemma Team 2024)."""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, loop, vectorized
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.rmsnorm import normalised
from jit_kernels.types import F32, I64

__all__ = ["rmsnorm_add"]


@kernel
def rmsnorm_add(
    rows: Array[I64],
    x: Array[F32],
    x_stride: Value[I64],
    weight: Array[F32],
    eps: Value[F32],
    n: Value[I64],
    residual: Array[F32],
    residual_stride: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
) -> None:
    """Add the normalised rows of `x` [R, n] to `residual` into `out`, which may be `residual`."""
    first, last = worker().share(rows[0])
    for row in loop(first, last):
        values = normalised(x + row * x_stride, weight, eps, n)
        before, target = residual + row * residual_stride, out + row * out_stride
        for k in vectorized(n):
            target[k] = before[k] + values(k)
