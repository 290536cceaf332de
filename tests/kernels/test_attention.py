"""Attention over pages, bit for bit: whatever tiles, splits, chunks, workers, instructions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from jit_kernels.isa import AVX2, BASELINE, NEON, Isa
from jit_kernels.kernels.attention import attention, query_tile
from jit_kernels.reference import attention as reference
from tests.kernels.attention_cases import (
    Case,
    attend,
    attend_with_threads,
    fill_pages,
    random_case,
    split_items,
    tiled_items,
)
from tests.kernels.guarded import guarded, guarded_before
from tests.kernels.machine_code import each_fast_isa, same_bits

# Around every page's and every segment's end; (context, rows that ask).
REQUESTS = (
    *((1, 1), (2, 2), (31, 2), (32, 1), (33, 33), (127, 1), (128, 3), (129, 20)),
    *((255, 1), (257, 9), (1003, 1)),
)
# Every head size and every ratio of heads with one or two kv heads.
HEADS = ((64, 3, 2), (80, 1, 2), (96, 2, 1), (128, 4, 1), (256, 7, 1), (64, 8, 1))


def requests_of(head_dim: int, heads_per_kv: int, num_kv_heads: int) -> Case:
    """Every context; a wide head has fewer rows, for the reference's sake."""
    contexts, rows = zip(*REQUESTS, strict=True)
    if head_dim * heads_per_kv > 512:
        rows = [min(count, 3) for count in rows]
    return random_case(head_dim, heads_per_kv, contexts, rows, num_kv_heads=num_kv_heads)


@lru_cache
def expected_of(head_dim: int, heads_per_kv: int, num_kv_heads: int) -> np.ndarray:
    return requests_of(head_dim, heads_per_kv, num_kv_heads).expected()


@lru_cache
def straddling_expected() -> np.ndarray:
    return straddling().expected()


def straddling() -> Case:
    """Rows 95 .. 156, 0 .. 40 and 300: tiles across a segment's end, from 0, and a lone row."""
    return random_case(64, 3, (157, 41, 301), (62, 41, 1))


@each_fast_isa
@pytest.mark.parametrize(("head_dim", "heads_per_kv", "num_kv_heads"), HEADS)
def test_every_shape_gives_the_reference_bits(
    isa: Isa, head_dim: int, heads_per_kv: int, num_kv_heads: int
) -> None:
    case = requests_of(head_dim, heads_per_kv, num_kv_heads)
    expected = expected_of(head_dim, heads_per_kv, num_kv_heads)

    whole = attend(case, isa, tiled_items(case), place=guarded)
    split = attend(case, isa, *split_items(case), place=guarded)

    same_bits(whole, expected)
    same_bits(split, expected)


def test_the_baseline_gives_the_same_bits() -> None:
    case = straddling()
    expected = straddling_expected()

    same_bits(attend(case, BASELINE, tiled_items(case)), expected)
    same_bits(attend(case, BASELINE, *split_items(case)), expected)


@pytest.mark.parametrize("context", [1, 32, 33, 130, 301])
def test_no_page_is_looked_up_past_the_last(context: int) -> None:
    case = random_case(16, 1, [context], [1])
    expected = case.expected()

    same_bits(attend(case, AVX2, tiled_items(case), place=guarded), expected)
    same_bits(attend(case, AVX2, *split_items(case), place=guarded), expected)


def test_nothing_before_the_operands_is_touched() -> None:
    case = straddling()
    expected = straddling_expected()

    same_bits(attend(case, AVX2, tiled_items(case), place=guarded_before), expected)
    same_bits(attend(case, AVX2, *split_items(case), place=guarded_before), expected)


@each_fast_isa
@pytest.mark.parametrize("most", [1, 2, 5, 7, 13])
def test_a_row_has_the_same_bits_in_any_tile(isa: Isa, most: int) -> None:
    case = straddling()

    tiles = attend(case, isa, tiled_items(case, most))

    same_bits(tiles, straddling_expected())


@pytest.mark.parametrize("heads_per_kv", [1, 2, 3, 4, 5, 7, 8])
def test_a_tile_may_end_anywhere_in_its_last_block(heads_per_kv: int) -> None:
    most = query_tile(heads_per_kv)
    for count in {*range(2, min(most, 8) + 1), most}:
        case = random_case(16, heads_per_kv, [150], [count], num_kv_heads=1, seed=count)

        same_bits(attend(case, AVX2, tiled_items(case), place=guarded), case.expected())


def test_chunks_give_the_bits_of_the_whole_prompt() -> None:
    case = random_case(64, 3, [150], [150])
    pages = case.pages.copy()
    case.pages[:] = 0xFF
    whole, parts = case.expected(), []
    for start in range(0, 150, 7):  # what a later chunk brings is not there yet
        end = min(start + 7, 150)
        chunk = Case(
            case.queries[start:end], [case.keys[0][:end]], [case.values[0][:end]],
            [end - start], case.pages, case.table, case.first_pages,
        )  # fmt: skip
        fill_pages(chunk, 0)
        parts.append(attend(chunk, AVX2, tiled_items(chunk)))

    same_bits(np.concatenate(parts), whole)
    assert np.array_equal(case.pages, pages)


@pytest.mark.parametrize("filler", [0, 0x7F800000, 0xFFFFFFFF])
def test_what_pages_hold_beyond_a_request_changes_nothing(filler: int) -> None:
    case = straddling()
    expected = straddling_expected()
    case.pages.view(np.uint32)[:] = filler
    for request in range(3):
        fill_pages(case, request)

    same_bits(attend(case, AVX2, tiled_items(case)), expected)
    same_bits(attend(case, AVX2, *split_items(case)), expected)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_threads_that_share_the_units_give_the_same_bits(num_threads: int) -> None:
    case = straddling()
    items, splits = split_items(case)
    for chaos_seed in range(3):
        whole = attend_with_threads(case, tiled_items(case), [], num_threads, chaos_seed)
        split = attend_with_threads(case, items, splits, num_threads, chaos_seed)

        same_bits(whole, straddling_expected())
        same_bits(split, whole)


def test_items_may_come_in_any_order() -> None:
    case = straddling()
    tiles, (parts, splits) = tiled_items(case), split_items(case)
    rng = np.random.default_rng(0)
    shuffled = [tiles[i] for i in rng.permutation(len(tiles))]

    same_bits(attend(case, AVX2, shuffled, num_workers=3), straddling_expected())
    same_bits(attend(case, AVX2, parts[::-1], splits[::-1], num_workers=3), straddling_expected())


def test_no_items_write_nothing() -> None:
    out = attend(straddling(), AVX2, [])

    assert (out == -1).all()


@each_fast_isa
@pytest.mark.parametrize(
    ("part", "poison"), [("keys", np.nan), ("values", np.nan), ("values", np.inf)]
)
def test_a_request_that_is_not_finite_keeps_it_to_itself(
    isa: Isa, part: str, poison: float
) -> None:
    case, expected = straddling(), straddling_expected()
    position, start = 131, 95
    {"keys": case.keys, "values": case.values}[part][0][position, :, 5] = poison
    fill_pages(case, 0)
    later = slice(position - start, 62)  # rows of the first request that see the poison

    out = attend(case, isa, tiled_items(case))

    same_bits(out, case.expected())
    seen = out[later] if part == "keys" else out[later, :, 5:6]
    assert not np.isfinite(seen).any()
    out[later] = expected[later]
    same_bits(out, expected)  # neither its own earlier rows nor another request


def test_queries_that_are_not_finite_make_their_own_row_nan() -> None:
    case = straddling()
    case.queries[7] = np.nan
    expected = straddling_expected().copy()
    expected[7] = np.nan

    same_bits(attend(case, AVX2, tiled_items(case)), expected)


def test_scores_beyond_the_range_of_exp_are_finite() -> None:
    case = straddling()
    case.queries[:] *= 1000

    out = attend(case, AVX2, tiled_items(case))

    assert np.isfinite(out).all()
    same_bits(out, case.expected())


def test_the_reference_is_attention() -> None:
    case = random_case(64, 3, [300], [9])
    keys, values = (
        np.repeat(each[0].astype(np.float64), 3, 1) for each in (case.keys, case.values)
    )
    scores = np.einsum("rhd,nhd->rhn", case.queries, keys) * case.scoring.scale
    sees = np.arange(291, 300)[:, None] >= np.arange(300)
    weights = np.where(sees[:, None], np.exp(scores - scores.max()), 0)
    exact = np.einsum("rhn,nhd->rhd", weights / weights.sum(-1, keepdims=True), values)

    # A score is 64 roundings of its terms' absolute sum away, exp adds 2e-7; numerator and
    # denominator are sums of 300 terms, merged from three segments.
    unit = 2.0**-24
    score = (
        64
        * unit
        * np.einsum("rhd,nhd->rhn", abs(case.queries), abs(keys)).max()
        * case.scoring.scale
    )
    tolerance = (2 * (score + 4e-7) + 2 * 310 * unit) * abs(values).max()
    np.testing.assert_allclose(case.expected(), exact, rtol=0, atol=tolerance)


def test_the_reference_merges_segments_to_one_softmax() -> None:
    rng = np.random.default_rng(0)
    states = [
        reference.State(*(rng.standard_normal(shape).astype(np.float32) for shape in shapes))
        for shapes in [((2, 3), (2, 3), (2, 3, 4))] * 2
    ]
    weights = [np.exp(state.m.astype(np.float64)) for state in states]

    merged = reference.merge(*states)

    total = sum(w * state.total for w, state in zip(weights, states, strict=True))
    # Two products and a sum of values below 10, in units of e^m < 20: 4 roundings of 2^-24 each.
    np.testing.assert_allclose(
        merged.total * np.exp(merged.m.astype(np.float64)), total, rtol=0, atol=200 * 2.0**-22
    )


def test_code_for_neon_multiplies_and_adds_in_one() -> None:
    text = attention.specialise(head_dim=16, heads_per_kv=2).show("asm", NEON)

    assert "fmla" in text
