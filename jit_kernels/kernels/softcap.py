"""Soft cap: x ← c · tanh(x / c), in place   (Gemma Team 2024, sec. 2)."""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, loop, minimum, tanh, vectorized
from jit_kernels.kernel import kernel, worker
from jit_kernels.types import F32, I64

__all__ = ["softcap"]

_BLOCK = 1024  # elements that one worker takes at a time


@kernel
def softcap(
    rows: Array[I64], x: Array[F32], x_stride: Value[I64], n: Value[I64], cap: Value[F32]
) -> None:
    """Cap the rows of `x` [R, n]."""
    num_blocks = (n + (_BLOCK - 1)) // _BLOCK
    first, last = worker().share(rows[0] * num_blocks)
    for item in loop(first, last):
        row, start = item // num_blocks, item % num_blocks * _BLOCK
        block = x + (row * x_stride + start)
        for k in vectorized(minimum(n - start, _BLOCK)):
            block[k] = tanh(block[k] / cap) * cap
