"""RoPE: (x₁, x₂) ← (x₁ cos − x₂ sin, x₂ cos + x₁ sin) on head halves   (Su et al. 2021, eq. 34).

Rotates q and k of fused qkv rows; writes q to its buffer and k, v into their pages of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jit_kernels.dsl import Array, Value, VectorIndex, fma, if_else, loop, vectorized
from jit_kernels.kernel import kernel, worker
from jit_kernels.types import F32, I32, I64

__all__ = ["Halves", "HeadRows", "append_heads", "halves_as_they_are", "rope_append"]

_PAGE_TOKENS = 32

Halves = Callable[[VectorIndex], tuple[Value[F32], Value[F32]]]
"""Sixteen consecutive elements of a head's lower half, and those they turn with."""


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Rows of q, k, v side by side, and where turned queries go."""

    qkv: Array[F32]
    qkv_stride: Value[I64]
    q_out: Array[F32]
    q_stride: Value[I64]
    num_heads: Value[I64]
    num_kv_heads: Value[I64]
    head_dim: int


@kernel
def rope_append(
    rows: Array[I64],
    qkv: Array[F32],
    qkv_stride: Value[I64],
    positions: Array[I32],
    cos: Array[F32],
    sin: Array[F32],
    slots: Array[I64],
    q_out: Array[F32],
    q_stride: Value[I64],
    kv: Array[F32],
    num_heads: Value[I64],
    num_kv_heads: Value[I64],
    *,
    head_dim: int,
) -> None:
    """Rotate row r by `positions[r]`; its k, v go to token slot `slots[r]` = page * 32 + offset.

    A row of `qkv` is [num_heads + 2 num_kv_heads][head_dim]; `cos`, `sin` are [positions][D/2].
    Pages are [page][kv head]{K [D][32], V [32][D]}.
    """
    heads = HeadRows(qkv, qkv_stride, q_out, q_stride, num_heads, num_kv_heads, head_dim)
    append_heads(rows, heads, positions, cos, sin, slots, kv, halves_as_they_are(head_dim))


def append_heads(
    rows: Array[I64],
    given: HeadRows,
    positions: Array[I32],
    cos: Array[F32],
    sin: Array[F32],
    slots: Array[I64],
    kv: Array[F32],
    halves_of: Callable[[Array[F32], bool], Halves],
) -> None:
    """Turn every head; `halves_of` tells what is turned from a head and whether it is a query."""
    head_dim, num_heads, num_kv_heads = given.head_dim, given.num_heads, given.num_kv_heads
    heads = num_heads + num_kv_heads
    first, last = worker().share(rows[0] * heads)
    for item in loop(first, last):
        row, head = item // heads, item % heads
        source = given.qkv + (row * given.qkv_stride + head * head_dim)
        angle = positions[row].to(I64) * (head_dim // 2)
        for is_query in if_else(head < num_heads):
            halves = halves_of(source, is_query)
            if is_query:
                target = given.q_out + (row * given.q_stride + head * head_dim)
                _rotate(halves, cos + angle, sin + angle, target, head_dim, 1)
                continue
            page, offset = slots[row] // _PAGE_TOKENS, slots[row] % _PAGE_TOKENS
            block = page * num_kv_heads + head - num_heads
            keys = kv + block * (2 * _PAGE_TOKENS * head_dim)
            _rotate(halves, cos + angle, sin + angle, keys + offset, head_dim, _PAGE_TOKENS)
            values = keys + (_PAGE_TOKENS * head_dim + offset * head_dim)
            appended = source + num_kv_heads * head_dim
            for d in vectorized(head_dim):
                values[d] = appended[d]


def halves_as_they_are(head_dim: int) -> Callable[[Array[F32], bool], Halves]:
    """The halves of heads that nothing is done to before they turn."""

    def halves_of(head: Array[F32], is_query: bool) -> Halves:
        upper = head + head_dim // 2
        return lambda d: (head[d], upper[d])

    return halves_of


def _rotate(
    halves: Halves, cos: Array[F32], sin: Array[F32], out: Array[F32], head_dim: int, stride: int
) -> None:
    """Rotate one head, writing elements `stride` apart."""
    half = head_dim // 2
    for d in vectorized(half):
        lanes = 16 if d.mask is None else half % 16
        lower, upper = halves(d)
        _put(out, d, stride, lanes, fma(lower, cos[d], -(upper * sin[d])))
        _put(out + half * stride, d, stride, lanes, fma(upper, cos[d], lower * sin[d]))


def _put(out: Array[F32], d: VectorIndex, stride: int, lanes: int, values: Value[F32]) -> None:
    if stride == 1:
        out[d] = values
        return
    column = out + d.base * stride
    for lane in range(lanes):
        column[lane * stride] = values.lane(lane)
