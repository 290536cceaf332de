"""RoPE: (x₁, x₂) ← (x₁ cos − x₂ sin, x₂ cos + x₁ sin) on head halves   (Su et al. 2021, eq. 34).

Rotates q and k of fused qkv rows; writes q to its buffer and k, v into their pages of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jit_kernels.dsl import Array, Value, VectorIndex, fma, if_else, loop, stack_array, vectorized
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.kv_pages import Layout
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import F32, I32, I64, U8

__all__ = ["Head", "HeadRows", "append_heads", "rope_append"]

Head = Callable[[VectorIndex], Value[F32]]
"""Sixteen consecutive elements of a head, as they are before it turns."""


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Rows of q, k, v side by side, and where turned queries go.

    query_scale: what a query is multiplied by at each position, None for nothing.
    """

    qkv: Array[F32]
    qkv_stride: Value[I64]
    q_out: Array[F32]
    q_stride: Value[I64]
    num_heads: Value[I64]
    num_kv_heads: Value[I64]
    head_dim: int
    query_scale: Array[F32] | None = None


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
    query_scale: Array[F32],
    *,
    head_dim: int,
    turned: bool = True,
    scaled: bool = False,
    kv_format: str = "fp32",
) -> None:
    """Rotate row r by `positions[r]`; its k, v go to token slot `slots[r]` = page * 32 + offset.

    A row of `qkv` is [num_heads + 2 num_kv_heads][head_dim]; `cos`, `sin` are [positions][D/2], not
    looked at unless `turned`; where `scaled`, queries are multiplied by `query_scale` [positions].
    Pages are [page][kv head], each as `kv_layout` has it.
    """
    scale = query_scale if scaled else None
    heads = HeadRows(qkv, qkv_stride, q_out, q_stride, num_heads, num_kv_heads, head_dim, scale)
    angles = (cos, sin) if turned else None
    append_heads(
        rows, heads, positions, angles, slots, kv, Layout(kv_format, head_dim), _head_as_it_is
    )


def _head_as_it_is(head: Array[F32], is_query: bool) -> Head:
    """A head that nothing is done to before it turns."""
    return lambda d: head[d]


def append_heads(
    rows: Array[I64],
    given: HeadRows,
    positions: Array[I32],
    angles: tuple[Array[F32], Array[F32]] | None,
    slots: Array[I64],
    kv: Array[F32],
    layout: Layout,
    head_of: Callable[[Array[F32], bool], Head],
) -> None:
    """Turn every head; `head_of` tells what is turned from a head and whether it is a query.

    `angles` are cosines and sines by position, None where nothing turns.
    """
    head_dim, num_heads, num_kv_heads = given.head_dim, given.num_heads, given.num_kv_heads
    heads = num_heads + num_kv_heads
    first, last = worker().share(rows[0] * heads)
    key = stack_array(F32, head_dim)
    for item in loop(first, last):
        row, head = item // heads, item % heads
        source = given.qkv + (row * given.qkv_stride + head * head_dim)
        position = positions[row].to(I64)
        for is_query in if_else(head < num_heads):
            target = given.q_out + (row * given.q_stride + head * head_dim) if is_query else key
            if angles is None:
                _copy(head_of(source, is_query), target, head_dim)
            else:
                cos, sin = (table + position * (head_dim // 2) for table in angles)
                _turn(head_of(source, is_query), target, head_dim, cos, sin)
            if is_query:
                _scale_query(given, target, position)
                continue
            page, offset = slots[row] // PAGE_SIZE, slots[row] % PAGE_SIZE
            block = layout.block(kv.view(U8), page * num_kv_heads + head - num_heads)
            block.append(offset, key, source + num_kv_heads * head_dim)


def _turn(head: Head, out: Array[F32], head_dim: int, cos: Array[F32], sin: Array[F32]) -> None:
    half = head_dim // 2
    for d in vectorized(half):
        upper_index = VectorIndex(d.base + half, d.mask)
        lower, upper = head(d), head(upper_index)
        out[d] = fma(lower, cos[d], -(upper * sin[d]))
        out[upper_index] = fma(upper, cos[d], lower * sin[d])


def _copy(head: Head, out: Array[F32], head_dim: int) -> None:
    for d in vectorized(head_dim):
        out[d] = head(d)


def _scale_query(given: HeadRows, query: Array[F32], position: Value[I64]) -> None:
    if given.query_scale is not None:
        scale = given.query_scale[position]
        for d in vectorized(given.head_dim):
            query[d] = query[d] * scale
