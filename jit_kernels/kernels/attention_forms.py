"""The two forms of attention: a row alone, bound by memory, and rows in a tile, by arithmetic.

Both leave a query's state in the tile's scratch, with the same bits. Knows nothing of where
results go.
"""

from __future__ import annotations

from collections.abc import Callable

from jit_kernels.dsl import VECTOR_LANES, Array, Value, index, loop, minimum, when
from jit_kernels.isa import Isa
from jit_kernels.kernels.attention_blocks import (
    Ask,
    Block,
    Seen,
    Tile,
    find_highest,
    score_keys,
    softmax_row,
    weigh_values,
)
from jit_kernels.kernels.attention_items import SEGMENT_SIZE, Pages, Reading, num_pages
from jit_kernels.kernels.attention_scores import Scoring, Span
from jit_kernels.kernels.kv_pages import Stored
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import F32, I64

__all__ = ["ROW_TILE", "attend_row", "attend_tile", "gather"]

# Queries of a block in the tile form: 6 x 16 sums, one vector of operands and a broadcast fill
# sixteen registers of eight lanes.
ROW_TILE = 6
_MOST_VECTORS = 8


def attend_row(
    isa: Isa,
    tile: Tile,
    queries: Array[F32],
    heads_per_kv: int,
    position: Value[I64],
    pages: Pages,
    reading: Reading,
    scoring: Scoring,
) -> None:
    """Merge one segment into the state of one row's queries [heads_per_kv][D].

    `position` is the row's, from the segment's start. The keys bring in the values, and the values
    bring in the keys that are read after them.
    """
    span = scoring.seen(position)
    _turn_key_bias(tile, heads_per_kv, pages, scoring)
    heads = _head_blocks(isa, heads_per_kv)
    wide = 2 if max(size for _, size in heads) <= _most_queries(isa, 2) else 1
    for page in loop(span.first // PAGE_SIZE, num_pages(span.end)):
        keys, values = pages[page].keys, pages[page].values
        next_keys = reading[pages.first_page + page + 1].keys
        pages[page].ask_scales()
        scores = tile.scores + page * PAGE_SIZE
        for key in range(0, PAGE_SIZE, wide * VECTOR_LANES):
            for first, size in heads:
                block = _block(isa, first, size, wide)
                target = scores + (first * SEGMENT_SIZE + key)
                own = queries + first * tile.head_dim
                ask = None if first else _asking(values, next_keys + key, wide)
                score_keys(block, own, keys + key, target, tile.head_dim, ask)
                _add_key_bias(tile, block, page * PAGE_SIZE + key, scoring)
    for query in loop(heads_per_kv):
        find_highest(tile, query, scoring, span, query, position, pages)
    for query in loop(heads_per_kv):
        softmax_row(tile, query, scoring, span, pages)
    wide = _columns_at_once(isa, tile.head_dim, max(size for _, size in heads))
    for column in loop(0, tile.head_dim, wide * VECTOR_LANES):
        for first, size in heads:
            block, seen = _block(isa, first, size, wide), Seen(span, span)
            weigh_values(tile, block, pages, column, seen, None if first else reading)


def _asking(values: Stored, keys: Stored, wide: int) -> Ask:
    """What to ask for with each row of keys: the page's values, and `wide` vectors of `keys`.

    The values are asked for with each part of the page's keys: a request may be dropped.
    """

    def ask(d: Value[I64]) -> None:
        values.ask(d * PAGE_SIZE, PAGE_SIZE // VECTOR_LANES)
        keys.ask(d * PAGE_SIZE, wide)

    return ask


def _block(isa: Isa, first: int, size: int, wide: int) -> Block:
    registers = VECTOR_LANES // isa.float_lanes * wide
    fits = (size + 1) * registers + 1 <= isa.num_registers
    return Block(index(first), size, wide, apart=not fits)


def _most_queries(isa: Isa, wide: int) -> int:
    """Most queries whose sums, `wide` vectors each, leave registers for a vector and a factor.

    One register too few, and LLVM takes chains of sums through memory, which doubles their latency.
    """
    per_vector = VECTOR_LANES // isa.float_lanes
    return max(1, (isa.num_registers - per_vector - 1) // (per_vector * wide))


def _head_blocks(isa: Isa, heads_per_kv: int) -> list[tuple[int, int]]:
    """(first, number) of blocks of about equal size that hold one row's queries."""
    count = -(-heads_per_kv // _most_queries(isa, 1))
    ends = [heads_per_kv * (block + 1) // count for block in range(count)]
    return [(first, end - first) for first, end in zip([0, *ends], ends, strict=False)]


def _columns_at_once(isa: Isa, head_dim: int, size: int) -> int:
    """Most vectors of columns that `size` queries take at once and that divide the head."""
    vectors = head_dim // VECTOR_LANES
    return max(
        wide
        for wide in range(1, _MOST_VECTORS + 1)
        if vectors % wide == 0 and (wide == 1 or size <= _most_queries(isa, wide))
    )


def gather(
    tile: Tile, rows: Array[F32], num_rows: Value[I64], stride: Value[I64], heads_per_kv: int
) -> None:
    """Copy the queries of several rows side by side.

    What fills the last block is whatever the scratch held: its sums go nowhere.
    """
    row_floats = heads_per_kv * tile.head_dim
    for row in loop(num_rows):
        for column in loop(0, row_floats, VECTOR_LANES):
            tile.queries[row * row_floats + column] = (rows + row * stride).vector(column)


def attend_tile(
    tile: Tile,
    heads_per_kv: int,
    num_rows: Value[I64],
    offset: Value[I64],
    pages: Pages,
    scoring: Scoring,
) -> None:
    """Merge one segment into the state of all rows' queries.

    `offset` is the first row's position within the segment; it may be negative.
    """
    num_queries = num_rows * heads_per_kv

    def position_of(query: Value[I64]) -> Value[I64]:
        return offset + minimum(query // heads_per_kv, num_rows - 1)

    def seen_by(query: Value[I64]) -> Span:
        return scoring.seen(position_of(query))

    _turn_key_bias(tile, num_queries, pages, scoring)
    _score_tile(tile, num_queries, pages, seen_by, scoring)
    for query in loop(num_queries):
        span = seen_by(query)
        with when(span.is_filled):
            head = query % heads_per_kv
            find_highest(tile, query, scoring, span, head, position_of(query), pages)
    for query in loop(num_queries):
        span = seen_by(query)
        with when(span.is_filled):
            softmax_row(tile, query, scoring, span, pages)
    for column in loop(0, tile.head_dim, VECTOR_LANES):
        for query in loop(0, num_queries, ROW_TILE):
            seen = Seen.of([seen_by(query + row) for row in range(ROW_TILE)])
            with when(seen.by_any.is_filled):
                weigh_values(tile, Block(query, ROW_TILE, 1), pages, column, seen)


def _score_tile(
    tile: Tile,
    num_queries: Value[I64],
    pages: Pages,
    seen_by: Callable[[Value[I64]], Span],
    scoring: Scoring,
) -> None:
    """Products of every query and the keys that any query of its block sees."""
    first_page = seen_by(index(0)).first // PAGE_SIZE
    for page in loop(first_page, num_pages(seen_by(num_queries).end)):
        for query in loop(0, num_queries, ROW_TILE):
            source = tile.queries + query * tile.head_dim
            begin, end = seen_by(query).first, seen_by(query + (ROW_TILE - 1)).end
            for key in range(0, PAGE_SIZE, VECTOR_LANES):
                first = page * PAGE_SIZE + key
                needed = first < end
                if not isinstance(begin, int):
                    needed = needed & (first + VECTOR_LANES > begin)
                with when(needed):
                    target = tile.scores + query * SEGMENT_SIZE + first
                    block = Block(query, ROW_TILE, 1)
                    score_keys(block, source, pages[page].keys + key, target, tile.head_dim)
                    _add_key_bias(tile, block, first, scoring)


def _turn_key_bias(
    tile: Tile, num_queries: Value[I64] | int, pages: Pages, scoring: Scoring
) -> None:
    if scoring.key_bias is not None:
        scoring.key_bias.turn(tile.pairs, tile.turned, num_queries, pages.start)


def _add_key_bias(tile: Tile, block: Block, key: Value[I64], scoring: Scoring) -> None:
    """What the bias adds to a block's products with the keys from `key` of the segment on."""
    if scoring.key_bias is not None:
        turned = tile.turned + block.first * tile.head_dim
        target = tile.added + block.first * SEGMENT_SIZE + key
        angles = Stored(scoring.key_bias.angles + key)
        score_keys(block, turned, angles, target, tile.head_dim, stride=SEGMENT_SIZE)
