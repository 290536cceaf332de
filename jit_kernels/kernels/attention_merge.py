"""Merge of split attention: M = max(m, m'), o = o e^(m-M) + o' e^(m'-M), out = o / l   (Dao 2023).

Finishes the rows whose segments were computed as separate items, in the order of the segments and
by the formula that a whole item uses, so that splitting changes no bit.
"""

from __future__ import annotations

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    Variable,
    broadcast,
    claimed,
    constant,
    fma,
    index,
    loop,
    zeros,
)
from jit_kernels.kernel import kernel
from jit_kernels.kernels.attention import partial_floats
from jit_kernels.kernels.attention_blocks import merge_weights
from jit_kernels.kernels.attention_items import first_segment
from jit_kernels.types import F32, I32, I64

__all__ = ["SPLIT_WORDS", "attention_merge"]

SPLIT_WORDS = 4


@kernel
def attention_merge(
    num_splits: Array[I64],
    splits: Array[I64],
    partials: Array[F32],
    out: Array[F32],
    out_stride: Value[I64],
    num_kv_heads: Value[I64],
    counter: Array[I64],
    positions: Array[I32],
    window: Value[I64],
    *,
    head_dim: int,
    heads_per_kv: int,
    windowed: bool = False,
) -> None:
    """For each split {row, num_segments, first partial slot}: the row's attention output.

    Of a row that is `windowed`, segments before the window at `positions[row]` are left out.
    """
    size = partial_floats(head_dim, heads_per_kv)
    for unit in claimed(counter, num_splits[0] * num_kv_heads):
        split = splits + (unit // num_kv_heads) * SPLIT_WORDS
        kv_head = unit % num_kv_heads
        begin = index(0)
        if windowed:
            begin = first_segment(positions[split[0]].to(I64), window)
        target = out + split[0] * out_stride + kv_head * (heads_per_kv * head_dim)
        for head in range(heads_per_kv):
            first = partials + (split[2] * num_kv_heads + kv_head) * size
            state = first + head * (head_dim + 16)
            segments = (begin, split[1])
            _merge_head(state, segments, num_kv_heads * size, target + head * head_dim, head_dim)


def _merge_head(
    state: Array[F32],
    segments: tuple[Value[I64], Value[I64]],
    stride: Value[I64],
    target: Array[F32],
    head_dim: int,
) -> None:
    m = Variable(constant(float("-inf"), F32))
    total = Variable(constant(0.0, F32))
    columns = range(0, head_dim, VECTOR_LANES)
    for column in columns:
        target[column] = zeros(F32)
    for segment in loop(*segments):
        part = state + segment * stride
        old, new, m_new, l_new = merge_weights(
            m.get(), total.get(), part[head_dim], part[head_dim + 1]
        )
        m.set(m_new)
        total.set(l_new)
        for column in columns:
            merged = fma(target.vector(column), broadcast(old), part.vector(column) * new)
            target[column] = merged
    for column in columns:
        target[column] = target.vector(column) / total.get()
