"""Attention: softmax(q k^T * scale + causal mask) v over paged keys   (Vaswani 2017; Dao 2022).

Keys lie in pages of 32 tokens; 128 keys, anchored at position 0, are a segment. A segment is one
softmax from (-inf, 0, 0); segments are merged in order by one formula. What a row computes
depends on its position alone: not on the tile it shares, the chunk that brought it, or the
workers that ran. Masked keys are exact no-ops: their probability is selected to 0 and values past
the tile's last key are never read.

A unit of work is (item, kv head). An item with `segment` = -1 walks all segments and writes `out`;
one with a segment writes its state to `partials`, and `attention_merge` finishes the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    Variable,
    broadcast,
    claimed,
    exp,
    fma,
    fold_sum,
    if_else,
    index,
    lane_indices,
    loop,
    maximum,
    minimum,
    select,
    when,
    zeros,
)
from jit_kernels.kernel import kernel, worker
from jit_kernels.types import F32, I32, I64

__all__ = [
    "ITEM_WORDS",
    "PAGE_SIZE",
    "SEGMENT_SIZE",
    "attention",
    "partial_floats",
    "query_tile",
    "workspace_floats",
]

PAGE_SIZE = 32
SEGMENT_SIZE = 128
ITEM_WORDS = 8
_ROW_TILE = 6
_MAX_QUERIES = 48
_PAGES_PER_SEGMENT = SEGMENT_SIZE // PAGE_SIZE
_ITEM_FIRST_ROW, _ITEM_NUM_ROWS, _ITEM_POSITION, _ITEM_PAGES, _ITEM_SEGMENT, _ITEM_SLOT = range(6)
_MINUS_INFINITY = float("-inf")


def query_tile(heads_per_kv: int) -> int:
    """Most rows (tokens) of one item."""
    return max(1, _MAX_QUERIES // heads_per_kv)


def workspace_floats(head_dim: int, heads_per_kv: int) -> int:
    """float32 of scratch a worker needs: queries, scores, running state."""
    queries = query_tile(heads_per_kv) * heads_per_kv
    return queries * (2 * head_dim + SEGMENT_SIZE + 4) + 64


def partial_floats(head_dim: int, heads_per_kv: int) -> int:
    """float32 of one partial state: per query head of one kv head, o[D], m, l and padding."""
    return heads_per_kv * (head_dim + 16)


@dataclass(frozen=True, slots=True)
class _Tile:
    """One unit's scratch: queries [q][D], scores [q][128], outputs [q][D] and four scalars a row.

    `highest` and `total` are the running m and l; `old_weight` and `new_weight` say how the
    segment just done merges into the running output.
    """

    head_dim: int
    num_queries: Value[I64]
    queries: Array[F32]
    scores: Array[F32]
    outputs: Array[F32]
    highest: Array[F32]
    total: Array[F32]
    old_weight: Array[F32]
    new_weight: Array[F32]


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
    *,
    head_dim: int,
    heads_per_kv: int,
) -> None:
    """Attend from every row of every item; see the module's text for the operands."""
    scratch = workspace + worker().index * workspace_floats_per_worker
    page_floats = num_kv_heads * (2 * head_dim * PAGE_SIZE)
    for unit in claimed(counter, num_items[0] * num_kv_heads):
        item = items + (unit // num_kv_heads) * ITEM_WORDS
        kv_head = unit % num_kv_heads
        num_rows, position = item[_ITEM_NUM_ROWS], item[_ITEM_POSITION]
        tile = _tile(scratch, num_rows * heads_per_kv, head_dim, heads_per_kv)
        head_offset = kv_head * (heads_per_kv * head_dim)
        rows = queries + item[_ITEM_FIRST_ROW] * query_stride + head_offset
        _begin(tile, rows, num_rows, query_stride, heads_per_kv)
        table = page_tables + item[_ITEM_PAGES]
        kv = pages + kv_head * (2 * head_dim * PAGE_SIZE)
        chosen = item[_ITEM_SEGMENT]
        last = position + num_rows - 1
        first_segment = select(chosen < 0, index(0), chosen)
        end_segment = select(chosen < 0, last // SEGMENT_SIZE + 1, chosen + 1)
        for segment in loop(first_segment, end_segment):
            start = segment * SEGMENT_SIZE
            num_keys = minimum(last + 1 - start, SEGMENT_SIZE)
            segment_table = table + segment * _PAGES_PER_SEGMENT
            _scores(tile, kv, segment_table, page_floats, num_keys, heads_per_kv)
            _softmax(tile, position - start, num_keys, scale, heads_per_kv)
            _weigh_values(tile, kv, segment_table, page_floats, num_keys, heads_per_kv)
        for whole in if_else(chosen < 0):
            if whole:
                target = out + item[_ITEM_FIRST_ROW] * out_stride + head_offset
                _finish(tile, target, num_rows, out_stride, heads_per_kv)
            else:
                slot = (item[_ITEM_SLOT] * num_kv_heads + kv_head) * partial_floats(
                    head_dim, heads_per_kv
                )
                _write_partial(tile, partials + slot)


def _tile(scratch: Array[F32], num_queries: Value[I64], head_dim: int, heads_per_kv: int) -> _Tile:
    capacity = query_tile(heads_per_kv) * heads_per_kv
    sizes = (capacity * head_dim, capacity * SEGMENT_SIZE, capacity * head_dim, *[capacity] * 3)
    parts = [scratch]
    for size in sizes:
        parts.append(parts[-1] + size)
    return _Tile(head_dim, num_queries, *parts)


def _begin(
    tile: _Tile, rows: Array[F32], num_rows: Value[I64], stride: Value[I64], heads_per_kv: int
) -> None:
    """Gather the queries side by side and set the running state to (-inf, 0, 0)."""
    row_floats = heads_per_kv * tile.head_dim
    for row in loop(num_rows):
        for column in loop(0, row_floats, VECTOR_LANES):
            tile.queries[row * row_floats + column] = (rows + row * stride).vector(column)
            tile.outputs[row * row_floats + column] = zeros(F32)
    for query in loop(tile.num_queries):
        tile.highest[query] = _MINUS_INFINITY
        tile.total[query] = 0.0


def _row_blocks(tile: _Tile, heads_per_kv: int) -> Iterator[tuple[Value[I64], int]]:
    """(first query, number of queries) of blocks of six, then of the one that is left."""
    full = tile.num_queries // _ROW_TILE
    for block in loop(full):
        yield block * _ROW_TILE, _ROW_TILE
    rest = tile.num_queries % _ROW_TILE
    possible = {rows * heads_per_kv % _ROW_TILE for rows in range(1, _ROW_TILE + 1)} - {0}
    for size in sorted(possible):
        with when(rest.equals(size)):
            yield full * _ROW_TILE, size


def _scores(
    tile: _Tile,
    kv: Array[F32],
    table: Array[I32],
    page_floats: Value[I64],
    num_keys: Value[I64],
    heads_per_kv: int,
) -> None:
    """scores[q][key] = q . k, one fma chain over the head's dimensions, for each page."""
    for page in loop((num_keys + (PAGE_SIZE - 1)) // PAGE_SIZE):
        keys = kv + table[page].to(I64) * page_floats
        for query, size in _row_blocks(tile, heads_per_kv):
            wide = 2 if size <= 3 else 1
            for first in range(0, PAGE_SIZE, wide * VECTOR_LANES):
                target = tile.scores + query * SEGMENT_SIZE + page * PAGE_SIZE + first
                source = tile.queries + query * tile.head_dim
                _score_block(tile.head_dim, source, keys + first, target, size, wide)


def _score_block(
    head_dim: int, source: Array[F32], keys: Array[F32], target: Array[F32], size: int, wide: int
) -> None:
    sums = _accumulators(size, wide)
    unroll = 2
    for base in loop(0, head_dim, unroll):
        for step in range(unroll):
            d = base + step
            vectors = [keys.vector(d * PAGE_SIZE + v * VECTOR_LANES) for v in range(wide)]
            if size < _ROW_TILE:  # decoding: bring in the values while the keys are at work
                for line in range(PAGE_SIZE * wide // 32 * 4 // 2):
                    ahead = (d * PAGE_SIZE + head_dim * PAGE_SIZE) * 4 + line * 64
                    keys.prefetch(ahead, 2)
            for row in range(size):
                q = source.broadcast(d + row * head_dim)
                for v in range(wide):
                    sums[row][v].set(fma(q, vectors[v], sums[row][v].get()))
    for row in range(size):
        for v in range(wide):
            target[index(row * SEGMENT_SIZE + v * VECTOR_LANES)] = sums[row][v].get()


def _accumulators(size: int, wide: int) -> list[list[Variable[F32]]]:
    return [[Variable(zeros(F32)) for _ in range(wide)] for _ in range(size)]


def _softmax(
    tile: _Tile,
    first_offset: Value[I64],
    num_keys: Value[I64],
    scale: Value[F32],
    heads_per_kv: int,
) -> None:
    """Turn each row's scores into probabilities and merge (m, l) into the running state.

    `first_offset` is the first row's position within the segment. A row that sees no key of the
    segment gets probabilities 0 and weights (1, 0).
    """
    num_vectors = (num_keys + (VECTOR_LANES - 1)) // VECTOR_LANES
    for query in loop(tile.num_queries):
        visible = first_offset + query // heads_per_kv + 1
        row = tile.scores + query * SEGMENT_SIZE
        for sees in if_else(visible > 0):
            if sees:
                _softmax_row(tile, query, row, visible, num_vectors, scale)
            else:
                for vector in loop(num_vectors):
                    row[vector * VECTOR_LANES] = zeros(F32)
                tile.old_weight[query] = 1.0
                tile.new_weight[query] = 0.0


def _softmax_row(
    tile: _Tile,
    query: Value[I64],
    row: Array[F32],
    visible: Value[I64],
    num_vectors: Value[I64],
    scale: Value[F32],
) -> None:
    limit = minimum(visible, SEGMENT_SIZE).to(I32)
    highest = RunningMax(F32, _MINUS_INFINITY)
    for vector in loop(num_vectors):
        at = vector * VECTOR_LANES
        lanes = lane_indices(I32) + at.to(I32)
        score = select(lanes < limit, row.vector(at) * scale, _MINUS_INFINITY)
        row[at] = score
        highest.update(score)
    m = highest.value()
    total = Variable(zeros(F32))
    for vector in loop(num_vectors):
        at = vector * VECTOR_LANES
        probability = exp(row.vector(at) - broadcast(m))
        row[at] = probability
        total.set(total.get() + probability)
    old, new, merged_m, merged_l = merge_weights(
        tile.highest[query], tile.total[query], m, fold_sum(total.get())
    )
    tile.old_weight[query], tile.new_weight[query] = old, new
    tile.highest[query], tile.total[query] = merged_m, merged_l


def merge_weights(
    m_run: Value[F32], l_run: Value[F32], m: Value[F32], total: Value[F32]
) -> tuple[Value[F32], Value[F32], Value[F32], Value[F32]]:
    """The one merge formula: M = max(m_run, m), weights e**(m_run - M) and e**(m - M), (M, L)."""
    largest = maximum(m_run, m)
    old, new = exp(m_run - largest), exp(m - largest)
    return old, new, largest, fma(l_run, old, total * new)


def _weigh_values(
    tile: _Tile,
    kv: Array[F32],
    table: Array[I32],
    page_floats: Value[I64],
    num_keys: Value[I64],
    heads_per_kv: int,
) -> None:
    """outputs = outputs * old_weight + (sum over keys, in order, of p v) * new_weight."""
    values = kv + tile.head_dim * PAGE_SIZE
    for query, size in _row_blocks(tile, heads_per_kv):
        wide = 2 if size <= 3 and tile.head_dim % (2 * VECTOR_LANES) == 0 else 1
        for column in loop(0, tile.head_dim, wide * VECTOR_LANES):
            sums = _accumulators(size, wide)
            for page in loop((num_keys + (PAGE_SIZE - 1)) // PAGE_SIZE):
                block = values + table[page].to(I64) * page_floats + column
                row = tile.scores + query * SEGMENT_SIZE + page * PAGE_SIZE
                count = minimum(num_keys - page * PAGE_SIZE, PAGE_SIZE)
                _value_block(tile.head_dim, row, block, sums, count)
            _merge_block(tile, query, column, sums)


def _value_block(
    head_dim: int,
    row: Array[F32],
    values: Array[F32],
    sums: list[list[Variable[F32]]],
    count: Value[I64],
) -> None:
    def one_key(key: Value[I64]) -> None:
        for v in range(len(sums[0])):
            value = values.vector(key * head_dim + v * VECTOR_LANES)
            for r, row_sums in enumerate(sums):
                p = row.broadcast(key + r * SEGMENT_SIZE)
                row_sums[v].set(fma(p, value, row_sums[v].get()))

    unroll = 4
    whole = count // unroll * unroll
    for base in loop(0, whole, unroll):
        for step in range(unroll):
            one_key(base + step)
    for key in loop(whole, count):
        one_key(key)


def _merge_block(
    tile: _Tile, query: Value[I64], column: Value[I64], sums: list[list[Variable[F32]]]
) -> None:
    for r, row_sums in enumerate(sums):
        old, new = tile.old_weight[query + r], tile.new_weight[query + r]
        for v, total in enumerate(row_sums):
            at = (query + r) * tile.head_dim + column + v * VECTOR_LANES
            merged = fma(tile.outputs.vector(at), broadcast(old), total.get() * new)
            tile.outputs[at] = merged


def _finish(
    tile: _Tile, out: Array[F32], num_rows: Value[I64], stride: Value[I64], heads_per_kv: int
) -> None:
    for row in loop(num_rows):
        for head in range(heads_per_kv):
            query = row * heads_per_kv + head
            total = tile.total[query]
            for column in range(0, tile.head_dim, VECTOR_LANES):
                at = query * tile.head_dim + column
                target = row * stride + (head * tile.head_dim + column)
                out[target] = tile.outputs.vector(at) / total


def _write_partial(tile: _Tile, slot: Array[F32]) -> None:
    for query in loop(tile.num_queries):
        state = slot + query * (tile.head_dim + 16)
        for column in range(0, tile.head_dim, VECTOR_LANES):
            state[index(column)] = tile.outputs.vector(query * tile.head_dim + column)
        state[tile.head_dim] = tile.highest[query]
        state[tile.head_dim + 1] = tile.total[query]
