"""Pieces of attention that give it its bits: scores of a page, one softmax, values, the merge.

A block is some queries side by side, whose sums fill the registers. Every function here does the
same arithmetic for a query whatever block it is part of. Knows nothing of items or workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    Variable,
    broadcast,
    exp_nonpositive,
    fma,
    fold_sum,
    index,
    loop,
    maximum,
    minimum,
    select,
    when,
    zeros,
)
from jit_kernels.kernels.attention_items import (
    SEGMENT_SIZE,
    Pages,
    Reading,
    num_pages,
)
from jit_kernels.kernels.attention_scores import Scoring, Span
from jit_kernels.kernels.kv_pages import CODE_UNIT, Stored
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import BOOL, F32, I64

__all__ = [
    "Ask",
    "Block",
    "Seen",
    "Tile",
    "find_highest",
    "merge_weights",
    "score_keys",
    "softmax_row",
    "weigh_values",
]

_UNROLLED_KEYS = 4
_MINUS_INFINITY = float("-inf")
Sums = Sequence[Sequence[Variable[F32]]]
Ask = Callable[[Value[I64]], None]


@dataclass(frozen=True, slots=True)
class Tile:
    """A unit's scratch: queries [q][D], scores [q][128], outputs [q][D], and scalars a query.

    `pairs`, `turned` [q][D] and `added` [q][128] are what keys without their bias need.
    `highest` and `total` are the running m and l; `old_weight` and `new_weight` say how the
    segment just done merges into the running output.
    """

    head_dim: int
    queries: Array[F32]
    scores: Array[F32]
    outputs: Array[F32]
    highest: Array[F32]
    total: Array[F32]
    old_weight: Array[F32]
    new_weight: Array[F32]
    pairs: Array[F32]
    turned: Array[F32]
    added: Array[F32]

    @staticmethod
    def floats(capacity: int, head_dim: int) -> int:
        """float32 that a tile of `capacity` queries takes."""
        return capacity * (4 * head_dim + 2 * SEGMENT_SIZE + 4)

    @staticmethod
    def at(scratch: Array[F32], capacity: int, head_dim: int) -> Tile:
        """A tile that begins at `scratch`."""
        parts = [scratch]
        for size in (head_dim, SEGMENT_SIZE, head_dim, 1, 1, 1, 1, head_dim, head_dim):
            parts.append(parts[-1] + capacity * size)
        return Tile(head_dim, *parts)

    def clear(self, num_queries: Value[I64]) -> None:
        """Set the running state to (-inf, 0, 0)."""
        for query in loop(num_queries):
            for column in range(0, self.head_dim, VECTOR_LANES):
                self.outputs[query * self.head_dim + column] = zeros(F32)
            self.highest[query] = _MINUS_INFINITY
            self.total[query] = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """`size` queries from `first` on, with sums of `wide` vectors each.

    `apart`: vectors of operands meet all queries one after the other, for registers hold just one.
    """

    first: Value[I64]
    size: int
    wide: int
    apart: bool = False

    @property
    def width(self) -> int:
        """Keys or columns at once."""
        return self.wide * VECTOR_LANES

    def factors(self, array: Array[F32]) -> Sequence[Array[F32]]:
        """`array` of factors as each vector of operands is to read it: not kept for the next."""
        others = [array.hidden() if self.apart else array for _ in range(self.wide - 1)]
        return [array, *others]

    def sums(self) -> Sums:
        """Sums in registers, all 0."""
        return [[Variable(zeros(F32)) for _ in range(self.wide)] for _ in range(self.size)]


@dataclass(frozen=True, slots=True)
class Seen:
    """Which of a segment's keys a block's queries see: each of them, where they differ.

    Keys of `by_all` go to every sum; the others of `by_any` are looked at query by query.
    """

    by_all: Span
    by_any: Span
    by_each: Sequence[Span] = ()

    @staticmethod
    def of(spans: Sequence[Span]) -> Seen:
        """By queries in the order of their positions."""
        first, last = spans[0], spans[-1]
        by_any = Span(first.first, last.end)
        if isinstance(last.first, int):
            return Seen(first, by_any, spans)
        return Seen(Span(last.first, maximum(first.end, last.first)), by_any, spans)


def score_keys(
    block: Block,
    queries: Array[F32],
    keys: Stored,
    scores: Array[F32],
    head_dim: int,
    ask: Ask | None = None,
    stride: int = PAGE_SIZE,
) -> None:
    """scores[q][key] = q . k for `block.width` keys, [D][stride]: one fma chain over d.

    `ask` is told each row that is read.
    """
    sums, factors = block.sums(), block.factors(queries)
    for base in loop(0, head_dim, keys.rows_at_once):
        for ahead, vectors in enumerate(keys.rows(base, stride, block.wide)):
            d = base + ahead
            if ask is not None:
                ask(d)
            for v, (vector, factor) in enumerate(zip(vectors, factors, strict=True)):
                for row, totals in enumerate(sums):
                    q = factor.broadcast(d + row * head_dim)
                    totals[v].set(fma(q, vector, totals[v].get()))
    for row, totals in enumerate(sums):
        for v, total in enumerate(totals):
            scores[index(row * SEGMENT_SIZE + v * VECTOR_LANES)] = total.get()


def find_highest(
    tile: Tile,
    query: Value[I64],
    scoring: Scoring,
    span: Span,
    head: Value[I64],
    position: Value[I64],
    pages: Pages,
) -> None:
    """Turn a query's products in `span` into scores and keep m, the largest, for `softmax_row`.

    `position` counts from the segment's start.
    """
    row = tile.scores + query * SEGMENT_SIZE
    num_full = span.end // VECTOR_LANES * VECTOR_LANES
    highest = RunningMax(F32, _MINUS_INFINITY)

    def take(at: Value[I64], *, last: bool) -> None:
        score = scoring.logits(
            _scaled_products(tile, query, at, scoring, pages), at, head, position
        )
        score = scoring.masked(score, at, span, last=last)
        row[at] = score
        highest.update(score)

    for at in loop(scoring.first_vector(span), num_full, VECTOR_LANES):
        take(at, last=False)
    with when(num_full < span.end):
        take(num_full, last=True)
    tile.new_weight[query] = highest.value()


def softmax_row(tile: Tile, query: Value[I64], scoring: Scoring, span: Span, pages: Pages) -> None:
    """Turn a query's scores in `span` into e^(s - m) and merge (m, l) into the state.

    Others of the vectors that hold them become 0; values' scales are multiplied in. All queries
    have found their m by then: one after the other, each would wait for it.
    """
    row, m = tile.scores + query * SEGMENT_SIZE, tile.new_weight[query]
    total = Variable(zeros(F32))
    for at in loop(scoring.first_vector(span), span.end, VECTOR_LANES):
        probability = exp_nonpositive(row.vector(at) - broadcast(m))
        row[at] = probability
        if pages.layout.has_scales:
            row[at] = probability * pages[at // PAGE_SIZE].value_scales.vector(at % PAGE_SIZE)
        total.set(total.get() + probability)
    old, new, merged_m, merged_l = merge_weights(
        tile.highest[query], tile.total[query], m, fold_sum(total.get())
    )
    tile.old_weight[query], tile.new_weight[query] = old, new
    tile.highest[query], tile.total[query] = merged_m, merged_l


def _scaled_products(
    tile: Tile, query: Value[I64], at: Value[I64], scoring: Scoring, pages: Pages
) -> Value[F32]:
    """q . k of sixteen keys from the products with their codes, what their bias adds included."""
    place = query * SEGMENT_SIZE + at
    products = tile.scores.vector(place)
    if not pages.layout.has_scales:
        return products
    scales = pages[at // PAGE_SIZE].key_scales.vector(at % PAGE_SIZE) * (1.0 / CODE_UNIT)
    if scoring.key_bias is None:
        return products * scales
    return fma(products, scales, tile.added.vector(place))


def merge_weights(
    m_run: Value[F32], l_run: Value[F32], m: Value[F32], total: Value[F32]
) -> tuple[Value[F32], Value[F32], Value[F32], Value[F32]]:
    """The one merge formula: M = max(m_run, m), weights e**(m_run - M) and e**(m - M), (M, L)."""
    largest = maximum(m_run, m)
    old, new = exp_nonpositive(m_run - largest), exp_nonpositive(m - largest)
    return old, new, largest, fma(l_run, old, total * new)


def weigh_values(
    tile: Tile,
    block: Block,
    pages: Pages,
    column: Value[I64],
    seen: Seen,
    reading: Reading | None = None,
) -> None:
    """outputs = outputs * old_weight + (sum over keys, in order, of p v) * new_weight.

    For `block.width` columns. A query that sees no key keeps its output. In the course of all
    columns, in order, as many pages of keys are asked for as are read, `reading.lead` after them.
    """
    sums = block.sums()
    probabilities = tile.scores + block.first * SEGMENT_SIZE

    def one_by_one(first: Value[I64], end: Value[I64]) -> None:
        for key in loop(first, end):
            values = pages[key // PAGE_SIZE].values + key % PAGE_SIZE * tile.head_dim + column
            sees = [own.holds(key) for own in seen.by_each]
            _add_key([probabilities + key] * block.wide, values, sums, sees)

    first = seen.by_all.first
    if seen.by_each and not isinstance(first, int):
        one_by_one(index(seen.by_any.first), first)
    first_page, end_page = first // PAGE_SIZE, num_pages(seen.by_all.end)
    for page in loop(first_page, end_page):
        ask = None
        if reading is not None:
            ask = _asking(reading, pages, Span(first_page, end_page), page, block, column)
        values = pages[page].values + column
        start = page * PAGE_SIZE
        keys = Span(
            0 if isinstance(first, int) else maximum(first - start, 0),
            minimum(seen.by_all.end - start, PAGE_SIZE),
        )
        factors = block.factors(probabilities + start)
        _add_page(tile.head_dim, factors, values, keys, sums, ask)
    if seen.by_each:
        one_by_one(seen.by_all.end, seen.by_any.end)
    _merge(tile, block.first, column, sums, [own.is_filled for own in seen.by_each])


def _asking(
    reading: Reading,
    pages: Pages,
    of_segment: Span,
    page: Value[I64],
    block: Block,
    column: Value[I64],
) -> Ask:
    """What to ask for with each key whose values are added: later keys, and the next page's values.

    A request is dropped where too many are under way, so that keys are asked for twice, and again
    where the page before them is read: measured, it brings in a fifth more.
    """
    parts = pages.layout.head_dim // block.width
    times = 2 if parts % 2 == 0 else 1
    each, width = parts // times, block.width * times
    num_read = of_segment.end - of_segment.first
    turn = column // block.width % each * num_read + page - of_segment.first
    number = pages.first_page + of_segment.first + turn // each + reading.lead
    keys = reading[number].keys.past(turn % each * (PAGE_SIZE * width))
    values = pages[minimum(page + 1, of_segment.end - 1)].values + column

    def ask(key: Value[I64]) -> None:
        keys.ask(key * width, block.wide * times)
        values.ask(key * pages.layout.head_dim, block.wide)

    return ask


def _add_page(
    head_dim: int,
    factors: Sequence[Array[F32]],
    values: Stored,
    keys: Span,
    sums: Sums,
    ask: Ask | None,
) -> None:
    def one_key(key: Value[I64]) -> None:
        if ask is not None:
            ask(key)
        _add_key([factor + key for factor in factors], values + key * head_dim, sums)

    unrolled = (keys.end - keys.first) // _UNROLLED_KEYS * _UNROLLED_KEYS + keys.first
    for base in loop(keys.first, unrolled, _UNROLLED_KEYS):
        for step in range(_UNROLLED_KEYS):
            one_key(base + step)
    for key in loop(unrolled, keys.end):
        one_key(key)


def _add_key(
    factors: Sequence[Array[F32]],
    values: Stored,
    sums: Sums,
    sees: Sequence[Value[BOOL]] = (),
) -> None:
    """One key's values to every sum, or to those of the queries that see it."""
    for v, factor in enumerate(factors):
        vector = values.vector(v * VECTOR_LANES)
        for row, totals in enumerate(sums):
            before = totals[v].get()
            after = fma(factor.broadcast(row * SEGMENT_SIZE), vector, before)
            totals[v].set(select(sees[row], after, before) if sees else after)


def _merge(
    tile: Tile,
    first: Value[I64],
    column: Value[I64],
    sums: Sums,
    sees: Sequence[Value[BOOL]],
) -> None:
    for row, totals in enumerate(sums):
        old, new = tile.old_weight[first + row], tile.new_weight[first + row]
        for v, total in enumerate(totals):
            at = (first + row) * tile.head_dim + column + v * VECTOR_LANES
            before = tile.outputs.vector(at)
            after = fma(before, broadcast(old), total.get() * new)
            tile.outputs[at] = select(sees[row], after, before) if sees else after
