"""Attention on integers, where the cache holds codes: queries and weights become codes, too.

A query is q = s c with one s for its D elements; so are the weights p * (value's scale) of a
segment's keys. Sums of products of codes are exact in int32, whatever their order:

    q . k = f32(sum over d of c_q c_k) * (s_k * s_q)
    o     = f32(sum over keys of c_w c_v) * s_w

A key that a query does not see weighs 0. A word holds two codes of 16 bits: of neighbouring
elements of a key, or of neighbouring keys. Knows nothing of items, workers or the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    Variable,
    VectorIndex,
    dot_pairs,
    index,
    loop,
    round_to_int,
    zeros,
)
from jit_kernels.kernels.attention_items import SEGMENT_SIZE, Pages
from jit_kernels.kernels.attention_scores import Span
from jit_kernels.kernels.attention_tile import Ask, Block, Tile
from jit_kernels.kernels.kv_pages import Stored, code_factors, quantiser
from jit_kernels.kv_layout import LARGEST_WEIGHT_CODE, PAGE_SIZE, largest_query_code
from jit_kernels.types import BOOL, F32, I16, I32, I64, U32

__all__ = [
    "PAGE_PAIRS",
    "encode_query",
    "encode_weights",
    "score_codes",
    "unpack_keys",
    "unpack_values",
    "weigh_codes",
    "weight_factors",
]

PAGE_PAIRS = PAGE_SIZE // 2
"""Pairs of keys in a page."""
_UNROLLED_PAIRS = 2
Words = Callable[[Value[I64]], Sequence[Value[U32]]]
PageWords = Callable[[Value[I64], Value[I64]], Sequence[Value[U32]]]


def encode_query(query: Array[F32], target: Array[F32], head_dim: int) -> Value[F32]:
    """Write a query's codes, 16 bits each, where it may itself begin; return their scale."""
    code, scale = quantiser(query, head_dim, largest_query_code(head_dim))
    # A code takes half the room of an element, so that what is not yet read stays.
    for at in loop(0, head_dim, VECTOR_LANES):
        target.view(I16)[VectorIndex(at)] = code(query.vector(at)).to(I16)
    return scale


def weight_factors(largest_bits: Value[I32]) -> tuple[Value[F32], Value[F32]]:
    """What weights are multiplied by to be codes, and the codes' scale."""
    return code_factors(largest_bits, LARGEST_WEIGHT_CODE)


def encode_weights(weights: Array[F32], factor: Value[F32], filled: Span, covered: Span) -> None:
    """Replace weights by codes, 16 bits each, at the start of their row.

    Vectors of the keys `covered` that are not `filled` get the code 0, whatever stands there. Codes
    of weights that are not finite mean nothing: their scale is NaN.
    """
    codes = weights.view(I16)
    for at in loop(index(filled.first), filled.end, VECTOR_LANES):
        codes[VectorIndex(at)] = round_to_int(weights.vector(at) * factor).to(I16)
    ends = [(filled.end, covered.end)]
    if not isinstance(filled.first, int):
        ends.append((index(covered.first), filled.first))
    for first, end in ends:
        for at in loop(first, end, VECTOR_LANES):
            codes[VectorIndex(at)] = zeros(I16)


def unpack_keys(keys: Stored, words: Array[U32], head_dim: int) -> None:
    """A page's keys as words [D/2][32]."""
    vectors = PAGE_SIZE // VECTOR_LANES
    for pair in loop(head_dim // 2):
        for number, word in enumerate(keys.key_words(pair, vectors)):
            words[VectorIndex(pair * PAGE_SIZE + number * VECTOR_LANES)] = word


def unpack_values(pages: Pages, covered: Span, words: Array[U32], head_dim: int) -> None:
    """The values of the keys `covered`, whole pages of a segment, as words [64][D]."""
    for pair in loop(index(covered.first) // 2, covered.end // 2):
        values = pages[pair // PAGE_PAIRS].values
        for column in range(0, head_dim, VECTOR_LANES):
            at = pair % PAGE_PAIRS * (2 * head_dim) + column
            words[VectorIndex(pair * head_dim + column)] = values.value_words(at, head_dim, 1)[0]


def score_codes(
    block: Block,
    queries: Array[F32],
    words: Words,
    scores: Array[F32],
    head_dim: int,
    ask: Ask | None = None,
) -> None:
    """scores[q][key] = the product of codes in int32, for `block.width` keys.

    queries: codes as `encode_query` left them.  words: those of the keys for a pair of elements.
    `ask` is told each row that is read.
    """
    sums, factors = block.sums(I32), block.factors(queries)
    for base in loop(0, head_dim // 2, _UNROLLED_PAIRS):
        for pair in (base + ahead for ahead in range(_UNROLLED_PAIRS)):
            _ask_for_pair(ask, pair)
            _add(sums, factors, pair, words(pair), head_dim)
    for row, totals in enumerate(sums):
        for v, total in enumerate(totals):
            at = VectorIndex(index(row * SEGMENT_SIZE + v * VECTOR_LANES))
            scores.view(I32)[at] = total.get()


def weigh_codes(
    tile: Tile,
    block: Block,
    words: PageWords,
    column: Value[I64],
    pages: Span,
    sees: Sequence[Value[BOOL]] = (),
    ask: Callable[[Value[I64]], Ask] | None = None,
) -> None:
    """outputs = outputs * old_weight + (sum over the keys of `pages` of codes) * s_w * new_weight.

    words: `block.width` columns of a page's pair of keys.  sees: whether each query sees any key;
    codes of one that sees none mean nothing.  ask: what a page is to tell of each key it reads.
    """
    sums, first = block.sums(I32), tile.scores + block.first * SEGMENT_SIZE
    for page in loop(index(pages.first), pages.end):
        factors, ask_of_page = block.factors(first + page * PAGE_PAIRS), ask and ask(page)
        for base in loop(0, PAGE_PAIRS, _UNROLLED_PAIRS):
            for pair in (base + ahead for ahead in range(_UNROLLED_PAIRS)):
                _ask_for_pair(ask_of_page, pair)
                _add(sums, factors, pair, words(page, pair), SEGMENT_SIZE)
    scales = [tile.weight_scales[block.first + row] for row in range(block.size)]
    products = [
        [total.get().to(F32) * scale for total in totals]
        for totals, scale in zip(sums, scales, strict=True)
    ]
    tile.merge(block.first, column, products, sees)


def _ask_for_pair(ask: Ask | None, pair: Value[I64]) -> None:
    if ask is not None:
        for member in range(2):
            ask(pair * 2 + member)


def _add(
    sums: Sequence[Sequence[Variable[I32]]],
    factors: Sequence[Array[F32]],
    pair: Value[I64],
    words: Sequence[Value[U32]],
    stride: int,
) -> None:
    """Add the products of a pair of codes: each vector reads its factors, rows `stride` apart."""
    for v, (word, factor) in enumerate(zip(words, factors, strict=True)):
        for row, totals in enumerate(sums):
            codes = factor.view(U32).broadcast(pair + row * stride)
            totals[v].set(dot_pairs(totals[v].get(), word.bits_as(I16), codes.bits_as(I16)))
