"""RMSNorm: y = x / sqrt(mean(x²) + eps) · weight   (Zhang & Sennrich 2019, eq. 4)."""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, loop, running_sum, sqrt, vectorized
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.prepare import PreparedOperands, Values, prepare_rows
from jit_kernels.types import F32, I64

__all__ = ["normalised", "rmsnorm", "rmsnorm_prepare"]


@kernel
def rmsnorm(
    rows: Array[I64],
    x: Array[F32],
    x_stride: Value[I64],
    weight: Array[F32],
    eps: Value[F32],
    n: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
) -> None:
    """Normalise the rows of `x` [R, n] into `out`, which may be `x`."""
    first, last = worker().share(rows[0])
    for row in loop(first, last):
        values = normalised(x + row * x_stride, weight, eps, n)
        target = out + row * out_stride
        for k in vectorized(n):
            target[k] = values(k)


@kernel
def rmsnorm_prepare(
    rows: Array[I64],
    x: Array[F32],
    x_stride: Value[I64],
    weight: Array[F32],
    eps: Value[F32],
    n: Value[I64],
    prepared: PreparedOperands,
    *,
    form: str,
    group: int,
    row_tile: int,
) -> None:
    """Normalise the rows of `x` [R, n] for a linear."""

    def row_of(row: Value[I64]) -> Values:
        return normalised(x + row * x_stride, weight, eps, n)

    prepare_rows(prepared.rows(form, group, row_tile), rows[0], n, row_of)


def normalised(x: Array[F32], weight: Array[F32], eps: Value[F32], n: Value[I64]) -> Values:
    """The normalised values of one row."""
    square_sum = running_sum()
    for k in vectorized(n):
        square_sum.add_product(x[k], x[k])
    scale = 1.0 / sqrt(square_sum.value() / n.to(F32) + eps)
    return lambda k: x[k] * scale * weight[k]
