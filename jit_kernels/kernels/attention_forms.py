"""The two forms of attention: a row alone, bound by memory, and rows in a tile, by arithmetic.

Both leave a query's state in the tile's scratch, with the same bits. Knows nothing of where
results go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    broadcast,
    constant,
    index,
    loop,
    minimum,
    select,
    when,
)
from jit_kernels.isa import Isa
from jit_kernels.kernels.attention_blocks import (
    asking,
    find_highest,
    merge_states,
    score_keys,
    softmax_row,
    weigh_values,
)
from jit_kernels.kernels.attention_codes import (
    PAGE_PAIRS,
    encode_query,
    encode_weights,
    score_codes,
    unpack_keys,
    unpack_values,
    weigh_codes,
)
from jit_kernels.kernels.attention_items import SEGMENT_SIZE, Pages, Reading, num_pages
from jit_kernels.kernels.attention_scores import Scoring, Span
from jit_kernels.kernels.attention_tile import Ask, Block, Seen, Tile
from jit_kernels.kernels.kv_pages import Layout, Stored
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import F32, I64, U32

__all__ = ["QUERY_BLOCK", "attend_row", "attend_tile", "encode_queries", "gather"]

# Queries of a block in the tile form: 6 x 16 sums, one vector of operands and a broadcast fill
# sixteen registers of eight lanes; products of codes take one more.
_FLOAT_QUERIES = 6
_CODE_QUERIES = 4
QUERY_BLOCK = 48
"""What whole blocks of either kind, and whole vectors of queries, fill."""
_MOST_VECTORS = 8
_REGISTERS_FOR_CODES = 5


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
    heads, codes = _head_blocks(isa, heads_per_kv), pages.layout.has_scales
    most = max(size for _, size in heads)
    wide = 2 if most <= _most_queries(isa, 2, codes) else 1
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
                if pages.layout.has_scales:
                    words = partial((keys + key).key_words, num_vectors=wide)
                    score_codes(block, own, words, target, tile.head_dim, ask)
                else:
                    score_keys(block, own, keys + key, target, tile.head_dim, ask)
                _add_key_bias(tile, block, page * PAGE_SIZE + key, scoring)
    for query in loop(heads_per_kv):
        find_highest(tile, query, scoring, span, query, position, pages)
    of_pages = _pages_of(span)
    for query in loop(heads_per_kv):
        softmax_row(tile, query, scoring, span, pages)
    merge_states(tile, heads_per_kv, pages.layout, all_see=True)
    if codes:
        for query in loop(heads_per_kv):
            _encode_row(tile, query, scoring.vectors(span), of_pages)
    wide = _columns_at_once(isa, tile.head_dim, most, codes)
    for column in loop(0, tile.head_dim, wide * VECTOR_LANES):
        for first, size in heads:
            block, own = _block(isa, first, size, wide), None if first else reading
            if pages.layout.has_scales:
                _weigh_row_codes(tile, block, pages, column, of_pages, own)
            else:
                weigh_values(tile, block, pages, column, Seen(span, span), own)


def _weigh_row_codes(
    tile: Tile,
    block: Block,
    pages: Pages,
    column: Value[I64],
    of_pages: Span,
    reading: Reading | None,
) -> None:
    """Words are made where they meet a row's few queries, from what the cache holds."""

    def words(page: Value[I64], pair: Value[I64]) -> list[Value[U32]]:
        at = pair * (2 * tile.head_dim) + column
        return pages[page].values.value_words(at, tile.head_dim, block.wide)

    def ask(page: Value[I64]) -> Ask:
        assert reading is not None
        return asking(reading, pages, of_pages, page, block, column)

    weigh_codes(tile, block, words, column, of_pages, ask=None if reading is None else ask)


def _pages_of(span: Span) -> Span:
    """The pages of a segment that hold some of its keys."""
    first = 0 if isinstance(span.first, int) else span.first // PAGE_SIZE
    return Span(first, num_pages(span.end))


def _keys_of(pages: Span) -> Span:
    """All keys of some pages of a segment."""
    return Span(pages.first * PAGE_SIZE, pages.end * PAGE_SIZE)


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


def _most_queries(isa: Isa, wide: int, codes: bool = False) -> int:
    """Most queries whose sums, `wide` vectors each, leave registers for a vector and a factor.

    One register too few, and LLVM takes chains of sums through memory, which doubles their latency.
    Words of codes take some more until they are made.
    """
    per_vector = VECTOR_LANES // isa.float_lanes
    others = _REGISTERS_FOR_CODES if codes else 1
    return max(1, (isa.num_registers - per_vector - others) // (per_vector * wide))


def _head_blocks(isa: Isa, heads_per_kv: int) -> list[tuple[int, int]]:
    """(first, number) of blocks of about equal size that hold one row's queries."""
    count = -(-heads_per_kv // _most_queries(isa, 1))
    ends = [heads_per_kv * (block + 1) // count for block in range(count)]
    return [(first, end - first) for first, end in zip([0, *ends], ends, strict=False)]


def _columns_at_once(isa: Isa, head_dim: int, size: int, codes: bool) -> int:
    """Most vectors of columns that `size` queries take at once and that divide the head."""
    vectors = head_dim // VECTOR_LANES
    return max(
        wide
        for wide in range(1, _MOST_VECTORS + 1)
        if vectors % wide == 0 and (wide == 1 or size <= _most_queries(isa, wide, codes))
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
    of_pages = _pages_of(Span(seen_by(index(0)).first, seen_by(num_queries - 1).end))
    for query in loop(num_queries):
        span = seen_by(query)
        tile.old_weight[query] = select(span.is_filled, constant(1.0, F32), 0.0)
        with when(span.is_filled):
            softmax_row(tile, query, scoring, span, pages)
    merge_states(tile, num_queries, pages.layout, all_see=False)
    unpacked = tile.unpacked
    if pages.layout.has_scales:
        for query in loop(num_queries):
            _encode_row(tile, query, scoring.vectors(seen_by(query)), of_pages)
        unpack_values(pages, _keys_of(of_pages), unpacked, tile.head_dim)
    size = _queries_of_block(pages.layout)
    for column in loop(0, tile.head_dim, VECTOR_LANES):
        for query in loop(0, num_queries, size):
            block = Block(query, size, 1)
            seen = Seen.of([seen_by(query + row) for row in range(size)])
            with when(seen.by_any.is_filled):
                if pages.layout.has_scales:
                    _weigh_tile_codes(tile, block, unpacked, column, seen)
                else:
                    weigh_values(tile, block, pages, column, seen)


def _encode_row(tile: Tile, query: Value[I64], filled: Span, of_pages: Span) -> None:
    """A query's weights, for all keys of the pages that are read for any."""
    row, factor = tile.scores + query * SEGMENT_SIZE, tile.weight_factors[query]
    encode_weights(row, broadcast(factor), filled, _keys_of(of_pages))


def _queries_of_block(layout: Layout) -> int:
    return _CODE_QUERIES if layout.has_scales else _FLOAT_QUERIES


def _weigh_tile_codes(
    tile: Tile, block: Block, unpacked: Array[U32], column: Value[I64], seen: Seen
) -> None:
    """Words were made once for all queries of the tile."""

    def words(page: Value[I64], pair: Value[I64]) -> list[Value[U32]]:
        return [unpacked.vector((page * PAGE_PAIRS + pair) * tile.head_dim + column)]

    sees = [own.is_filled for own in seen.by_each]
    weigh_codes(tile, block, words, column, _pages_of(seen.by_any), sees)


def _score_tile(
    tile: Tile,
    num_queries: Value[I64],
    pages: Pages,
    seen_by: Callable[[Value[I64]], Span],
    scoring: Scoring,
) -> None:
    """Products of every query and the keys that any query of its block sees."""
    first_page = seen_by(index(0)).first // PAGE_SIZE
    unpacked, size = tile.unpacked, _queries_of_block(pages.layout)
    for page in loop(first_page, num_pages(seen_by(num_queries).end)):
        if pages.layout.has_scales:
            unpack_keys(pages[page].keys, unpacked, tile.head_dim)
        for query in loop(0, num_queries, size):
            source = tile.queries + query * tile.head_dim
            begin, end = seen_by(query).first, seen_by(query + (size - 1)).end
            for key in range(0, PAGE_SIZE, VECTOR_LANES):
                first = page * PAGE_SIZE + key
                needed = first < end
                if not isinstance(begin, int):
                    needed = needed & (first + VECTOR_LANES > begin)
                with when(needed):
                    target = tile.scores + query * SEGMENT_SIZE + first
                    block = Block(query, size, 1)
                    if pages.layout.has_scales:
                        words = partial(_unpacked_key_words, unpacked + key)
                        score_codes(block, source, words, target, tile.head_dim)
                    else:
                        score_keys(block, source, pages[page].keys + key, target, tile.head_dim)
                    _add_key_bias(tile, block, first, scoring)


def _unpacked_key_words(unpacked: Array[U32], pair: Value[I64]) -> list[Value[U32]]:
    return [unpacked.vector(pair * PAGE_SIZE)]


def encode_queries(
    tile: Tile, queries: Array[F32], num_queries: Value[I64] | int, layout: Layout
) -> Array[F32]:
    """What scores are to be computed from: queries [q][D], or their codes in the tile."""
    if not layout.has_scales:
        return queries
    for query in loop(num_queries):
        at = query * tile.head_dim
        scale = encode_query(queries + at, tile.queries + at, tile.head_dim)
        tile.query_scales[query] = scale
    return tile.queries


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
