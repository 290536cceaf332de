"""RoPE: (x₁, x₂) ← (x₁ cos − x₂ sin, x₂ cos + x₁ sin) on head halves   (Su et al. 2021, eq. 34).

Rotates q and k of fused qkv rows; writes q to its buffer and k, v into their pages of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jit_kernels.dsl import Array, Value, VectorIndex, fma, if_else, loop, stack_array, vectorized
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.kv_pages import Layout
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import F32, I32, I64, U8

__all__ = ["Head", "HeadOperands", "append_heads", "rope_append"]

Head = Callable[[VectorIndex], Value[F32]]
"""Sixteen consecutive elements of a head, as they are before it turns."""


class HeadOperands(NamedTuple):
    """Rows of q, k, v side by side, the tables that turn them, and where they go.

    A row of `qkv` is [num_heads + 2 num_kv_heads][D]; `cos`, `sin` are [positions][D/2]. Row r is
    at `positions[r]`; its k, v go to token slot `slots[r]` = page * 32 + offset of `kv`, whose
    pages are [page][kv head], each as `kv_layout` has it.
    """

    rows: Array[I64]
    qkv: Array[F32]
    qkv_stride: Value[I64]
    positions: Array[I32]
    cos: Array[F32]
    sin: Array[F32]
    slots: Array[I64]
    q_out: Array[F32]
    q_stride: Value[I64]
    kv: Array[F32]
    num_heads: Value[I64]
    num_kv_heads: Value[I64]


@kernel
def rope_append(
    heads: HeadOperands,
    query_scale: Array[F32],
    *,
    head_dim: int,
    turned: bool = True,
    scaled: bool = False,
    kv_format: str = "fp32",
) -> None:
    """Rotate q and k, unless not `turned`; where `scaled`, multiply q by `query_scale` [positions].

    `cos` and `sin` are looked at only where heads are turned.
    """
    scale = query_scale if scaled else None
    append_heads(heads, Layout(kv_format, head_dim), _head_as_it_is, turned=turned, scale=scale)


def _head_as_it_is(head: Array[F32], is_query: bool) -> Head:
    """A head that nothing is done to before it turns."""
    return lambda d: head[d]


def append_heads(
    given: HeadOperands,
    layout: Layout,
    head_of: Callable[[Array[F32], bool], Head],
    *,
    turned: bool,
    scale: Array[F32] | None,
) -> None:
    """Turn every head; `head_of` tells what is turned from a head and whether it is a query.

    scale: what a query is multiplied by at each position, None for nothing.
    """
    head_dim, num_heads, num_kv_heads = layout.head_dim, given.num_heads, given.num_kv_heads
    heads = num_heads + num_kv_heads
    first, last = worker().share(given.rows[0] * heads)
    key = stack_array(F32, head_dim)
    for item in loop(first, last):
        row, head = item // heads, item % heads
        source = given.qkv + (row * given.qkv_stride + head * head_dim)
        position = given.positions[row].to(I64)
        for is_query in if_else(head < num_heads):
            target = given.q_out + (row * given.q_stride + head * head_dim) if is_query else key
            if turned:
                cos, sin = (table + position * (head_dim // 2) for table in (given.cos, given.sin))
                _turn(head_of(source, is_query), target, head_dim, cos, sin)
            else:
                _copy(head_of(source, is_query), target, head_dim)
            if is_query:
                if scale is not None:
                    _multiply(target, head_dim, scale[position])
                continue
            page, offset = given.slots[row] // PAGE_SIZE, given.slots[row] % PAGE_SIZE
            block = layout.block(given.kv.view(U8), page * num_kv_heads + head - num_heads)
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


def _multiply(head: Array[F32], head_dim: int, factor: Value[F32]) -> None:
    for d in vectorized(head_dim):
        head[d] = head[d] * factor
