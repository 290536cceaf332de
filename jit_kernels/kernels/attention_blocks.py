"""Pieces of attention that give it its bits: scores of a page, one softmax, values, the merge.

A block is some queries side by side, whose sums fill the registers. Every function here does the
same arithmetic for a query whatever block it is part of. Knows nothing of items or workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    Variable,
    VectorIndex,
    absolute_bits,
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
from jit_kernels.kernels.attention_codes import weight_factors
from jit_kernels.kernels.attention_items import SEGMENT_SIZE, Pages, Reading, num_pages
from jit_kernels.kernels.attention_scores import Scoring, Span
from jit_kernels.kernels.attention_tile import Ask, Block, Seen, Sums, Tile
from jit_kernels.kernels.kv_pages import Layout, Stored
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import BOOL, F32, I32, I64

__all__ = [
    "asking",
    "find_highest",
    "merge_states",
    "merge_weights",
    "score_keys",
    "softmax_row",
    "weigh_values",
]

_UNROLLED_KEYS = 4
_UNROLLED_ROWS = 2
_MINUS_INFINITY = float("-inf")


class _Take(Protocol):
    """What is done with sixteen keys of a segment."""

    def __call__(self, at: Value[I64], *, last: bool) -> None: ...


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
    sums, factors = block.sums(F32), block.factors(queries)
    for base in loop(0, head_dim, _UNROLLED_ROWS):
        for d in (base + ahead for ahead in range(_UNROLLED_ROWS)):
            if ask is not None:
                ask(d)
            for v, factor in enumerate(factors):
                vector = keys.vector(d * stride + v * VECTOR_LANES)
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
    highest = RunningMax(F32, _MINUS_INFINITY)

    def take(at: Value[I64], *, last: bool) -> None:
        score = scoring.logits(
            _scaled_products(tile, query, at, scoring, pages), at, head, position
        )
        score = scoring.masked(score, at, span, last=last)
        row[at] = score
        highest.update(score)

    _each_vector(scoring, span, take)
    tile.new_weight[query] = highest.value()


def _each_vector(scoring: Scoring, span: Span, take: _Take) -> None:
    """Take sixteen keys after the other; only the last of them may reach beyond the span."""
    num_full = span.end // VECTOR_LANES * VECTOR_LANES
    first = index(scoring.first_vector(span))
    paired = first + (num_full - first) // (2 * VECTOR_LANES) * (2 * VECTOR_LANES)
    for at in loop(first, paired, 2 * VECTOR_LANES):
        take(at, last=False)
        take(at + VECTOR_LANES, last=False)
    with when(paired < num_full):
        take(paired, last=False)
    with when(num_full < span.end):
        take(num_full, last=True)


def softmax_row(tile: Tile, query: Value[I64], scoring: Scoring, span: Span, pages: Pages) -> None:
    """Turn a query's scores in `span` into e^(s - m), and keep their sum l for `merge_states`.

    Others of the vectors that hold them become 0. Values' scales are multiplied in. All queries
    have found their m by then: one after the other, each would wait for it.
    """
    row, m = tile.scores + query * SEGMENT_SIZE, tile.new_weight[query]
    total, largest = Variable(zeros(F32)), RunningMax(I32, 0)

    def take(at: Value[I64], *, last: bool) -> None:
        probability = exp_nonpositive(row.vector(at) - broadcast(m))
        total.set(total.get() + probability)
        if not pages.layout.has_scales:
            row[at] = probability
            return
        scales = pages[at // PAGE_SIZE].value_scales.vector(at % PAGE_SIZE)
        weights = scoring.masked(probability * scales, at, span, last=last, other=0.0)
        row[at] = weights
        largest.update(absolute_bits(weights))

    _each_vector(scoring, span, take)
    tile.new_total[query] = fold_sum(total.get())
    if pages.layout.has_scales:
        tile.weight_scales.view(I32)[query] = largest.value()


def merge_states(
    tile: Tile, num_queries: Value[I64] | int, layout: Layout, *, all_see: bool
) -> None:
    """Merge each query's (m, l) of a segment into its state, sixteen queries at a time.

    Where not `all_see` a key, those whose `old_weight` is 0 keep their state; the others' is 1. Of
    weights that are to be codes, their largest becomes the scale.
    """
    for first in loop(0, num_queries, VECTOR_LANES):
        at = VectorIndex(first)
        state = tile.highest[at], tile.total[at]
        old, new, *merged = merge_weights(*state, tile.new_weight[at], tile.new_total[at])
        if not all_see:
            sees = tile.old_weight[at] > zeros(F32)
            merged = [select(sees, *each) for each in zip(merged, state, strict=True)]
        tile.old_weight[at], tile.new_weight[at] = old, new
        tile.highest[at], tile.total[at] = merged
        if layout.has_scales:
            factor, scale = weight_factors(tile.weight_scales.view(I32)[at])
            tile.weight_factors[at], tile.weight_scales[at] = factor, scale


def _scaled_products(
    tile: Tile, query: Value[I64], at: Value[I64], scoring: Scoring, pages: Pages
) -> Value[F32]:
    """q . k of sixteen keys, from the products of codes where there are any, with their bias."""
    place = query * SEGMENT_SIZE + at
    if not pages.layout.has_scales:
        return tile.scores.vector(place)
    products = tile.scores.view(I32).vector(place).to(F32)
    key_scales = pages[at // PAGE_SIZE].key_scales.vector(at % PAGE_SIZE)
    scales = key_scales * tile.query_scales[query]
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
    sums = block.sums(F32)
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
            ask = asking(reading, pages, Span(first_page, end_page), page, block, column)
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
    products = [[total.get() for total in totals] for totals in sums]
    tile.merge(block.first, column, products, [own.is_filled for own in seen.by_each])


def asking(
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
