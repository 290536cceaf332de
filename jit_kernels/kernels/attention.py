"""Attention: softmax(q k^T * scale + causal mask) v over paged keys   (Vaswani 2017; Dao 2022).

Keys lie in pages of 32 tokens; 128 keys, anchored at position 0, are a segment. A segment is one
softmax from (-inf, 0, 0); segments are merged in order by one formula. What a row computes
depends on its position alone: not on the tile it shares, the chunk that brought it, or the
workers that ran. Keys that a row does not see are no part of its sums.

A unit of work is (item, kv head), see `attention_items`. A unit that walks all segments writes
`out`; one of a single segment, always of one row, writes its state to `partials`, and
`attention_merge` finishes the row.
"""

from __future__ import annotations

from collections.abc import Iterator

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    claimed,
    if_else,
    loop,
    maximum,
    minimum,
    select,
)
from jit_kernels.dsl.trace import current
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.attention_forms import (
    QUERY_BLOCK,
    attend_row,
    attend_tile,
    encode_queries,
    gather,
)
from jit_kernels.kernels.attention_items import SEGMENT_SIZE, Cache, Reading, Unit
from jit_kernels.kernels.attention_key_bias import KeyBias
from jit_kernels.kernels.attention_scores import Scoring
from jit_kernels.kernels.attention_tile import Tile
from jit_kernels.kernels.kv_pages import Layout
from jit_kernels.types import F32, I32, I64, U8

__all__ = ["attention", "partial_floats", "query_tile", "workspace_floats"]

_MAX_QUERIES = QUERY_BLOCK
# A claim costs a cache line's trip between cores; longer runs let workers end far apart.
_RUNS = 4
_LONGEST_RUN = 16


def query_tile(heads_per_kv: int) -> int:
    """Most rows (tokens) of one item."""
    return max(1, _MAX_QUERIES // heads_per_kv)


def workspace_floats(head_dim: int, heads_per_kv: int) -> int:
    """float32 of scratch a worker needs: queries, scores, running state."""
    return Tile.floats(_capacity(heads_per_kv), head_dim)


def partial_floats(head_dim: int, heads_per_kv: int) -> int:
    """float32 of one partial state: per query head of one kv head, o[D], m, l and padding."""
    return heads_per_kv * (head_dim + 16)


def _capacity(heads_per_kv: int) -> int:
    """Queries of a full tile, the last block filled up."""
    return -(-query_tile(heads_per_kv) * heads_per_kv // QUERY_BLOCK) * QUERY_BLOCK


@kernel
def attention(
    num_items: Array[I64],
    items: Array[I64],
    queries: Array[F32],
    query_stride: Value[I64],
    pages: Array[F32],
    page_tables: Array[I32],
    num_kv_heads: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
    partials: Array[F32],
    scale: Value[F32],
    counter: Array[I64],
    workspace: Array[F32],
    workspace_floats_per_worker: Value[I64],
    window: Value[I64],
    softcap: Value[F32],
    slopes: Array[F32],
    key_bias: Array[F32],
    cos: Array[F32],
    sin: Array[F32],
    segment_angles: Array[F32],
    *,
    head_dim: int,
    heads_per_kv: int,
    kv_format: str = "fp32",
    windowed: bool = False,
    softcapped: bool = False,
    biased: bool = False,
    key_biased: bool = False,
) -> None:
    """Attend from every row of every item; see the module's text for the operands.

    A row sees the last `window` keys where it is `windowed`; scores are `softcapped`, and `biased`
    by `slopes` [heads]: see `attention_scores`. Keys lack `key_bias` [kv heads][D] where it says
    `key_biased`: see `attention_key_bias`.
    """
    scoring = Scoring(
        scale,
        softcap if softcapped else None,
        slopes if biased else None,
        window if windowed else None,
        KeyBias(key_bias, cos, sin, segment_angles, head_dim) if key_biased else None,
    )
    scratch = workspace + worker().index * workspace_floats_per_worker
    tile = Tile.at(scratch, _capacity(heads_per_kv), head_dim)
    cache = Cache(Layout(kv_format, head_dim), pages.view(U8), page_tables, num_kv_heads)
    num_units = num_items[0] * num_kv_heads
    for number, later in _claimed_units(counter, num_units):
        unit = Unit.at(items, number, num_kv_heads, scoring.window)
        next_unit = Unit.at(items, later, num_kv_heads, scoring.window)
        rows = queries + unit.first_row * query_stride + unit.kv_head * (heads_per_kv * head_dim)
        _walk(tile, rows, query_stride, heads_per_kv, Reading(cache, unit, next_unit), scoring)
        for whole in if_else(unit.is_whole):
            if whole:
                row = unit.first_row * out_stride + unit.kv_head * (heads_per_kv * head_dim)
                _finish(tile, out + row, unit.num_rows, out_stride, heads_per_kv)
            else:
                slot = unit.slot * num_kv_heads + unit.kv_head
                _write_partial(tile, partials, slot, heads_per_kv)


def _claimed_units(
    counter: Array[I64], num_units: Value[I64]
) -> Iterator[tuple[Value[I64], Value[I64]]]:
    """The units of this worker, each with the one that it probably does next, itself if none.

    They are claimed in short runs, for only within a run is the next one sure.
    """
    workers = worker().count
    length = maximum(minimum(num_units // (workers * _RUNS), _LONGEST_RUN), 1)
    for run in claimed(counter, (num_units + length - 1) // length):
        begin = run * length
        end = minimum(begin + length, num_units)
        for number in loop(begin, end):
            likely = select(number + 1 < end, number + 1, begin + workers * length)
            yield number, select(likely < num_units, likely, number)


def _walk(
    tile: Tile,
    rows: Array[F32],
    stride: Value[I64],
    heads_per_kv: int,
    reading: Reading,
    scoring: Scoring,
) -> None:
    """All segments of a unit."""
    unit = reading.unit
    scoring = scoring.of_head(unit.kv_head, heads_per_kv)
    num_queries = unit.num_rows * heads_per_kv
    tile.clear(num_queries)
    for alone in if_else(unit.num_rows.equals(1)):
        if not alone:
            gather(tile, rows, unit.num_rows, stride, heads_per_kv)
        own = rows if alone else tile.queries
        if scoring.key_bias is not None:
            scoring.key_bias.pair(own, tile.pairs, num_queries)
        own = encode_queries(tile, own, num_queries, reading.cache.layout)
        for segment in loop(unit.first_segment, unit.end_segment):
            offset = unit.position - segment * SEGMENT_SIZE
            pages = reading.cache.pages(unit, segment)
            if alone:
                isa = current().isa
                attend_row(isa, tile, own, heads_per_kv, offset, pages, reading, scoring)
            else:
                attend_tile(tile, heads_per_kv, unit.num_rows, offset, pages, scoring)


def _finish(
    tile: Tile, out: Array[F32], num_rows: Value[I64], stride: Value[I64], heads_per_kv: int
) -> None:
    for row in loop(num_rows):
        for head in range(heads_per_kv):
            query = row * heads_per_kv + head
            total = tile.total[query]
            for column in range(0, tile.head_dim, VECTOR_LANES):
                at = query * tile.head_dim + column
                target = row * stride + (head * tile.head_dim + column)
                out[target] = tile.outputs.vector(at) / total


def _write_partial(tile: Tile, partials: Array[F32], slot: Value[I64], heads_per_kv: int) -> None:
    states = partials + slot * partial_floats(tile.head_dim, heads_per_kv)
    for query in loop(heads_per_kv):
        state = states + query * (tile.head_dim + 16)
        for column in range(0, tile.head_dim, VECTOR_LANES):
            state[column] = tile.outputs.vector(query * tile.head_dim + column)
        state[tile.head_dim] = tile.highest[query]
        state[tile.head_dim + 1] = tile.total[query]
