"""Windows, soft caps and ALiBi: the reference's bits in tiles and splits, and what they mean."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import AVX2, Isa
from jit_kernels.reference import attention as reference
from tests.kernels.attention_cases import (
    Options,
    attend,
    attend_with_threads,
    fill_pages,
    random_case,
    split_items,
    straddling,
    tiled_items,
)
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import each_fast_isa, same_bits

WINDOWS = (
    1, 33, 128, 200,
    *(pytest.param(window, marks=pytest.mark.slow) for window in (2, 5, 31, 100, 127, 129, 1000)),
)  # fmt: skip
EVERYTHING = Options(window=70, softcap=5.0, alibi=True, scale=0.25)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_gives_the_reference_bits_in_tiles_and_splits(window: int) -> None:
    case = straddling(Options(window=window))
    expected = case.expected()

    same_bits(attend(case, AVX2, tiled_items(case), place=guarded), expected)
    same_bits(attend(case, AVX2, *split_items(case), place=guarded), expected)


@each_fast_isa
@pytest.mark.parametrize(
    "options",
    [Options(softcap=3.0), Options(alibi=True), Options(scale=0.5), EVERYTHING],
    ids=["softcap", "alibi", "scale", "everything"],
)
def test_every_option_gives_the_reference_bits(isa: Isa, options: Options) -> None:
    case = straddling(options)
    expected = case.expected()

    same_bits(attend(case, isa, tiled_items(case), place=guarded), expected)
    same_bits(attend(case, isa, *split_items(case), place=guarded), expected)


@pytest.mark.parametrize("most", [1, 2, 7, 13])
def test_a_row_has_the_same_bits_in_any_tile(most: int) -> None:
    case = straddling(EVERYTHING)

    same_bits(attend(case, AVX2, tiled_items(case, most)), case.expected())


@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_give_the_same_bits(num_threads: int) -> None:
    case = straddling(EVERYTHING)

    whole = attend_with_threads(case, tiled_items(case), [], num_threads, chaos_seed=1)
    split = attend_with_threads(case, *split_items(case), num_threads, chaos_seed=2)

    same_bits(whole, case.expected())
    same_bits(split, whole)


def test_keys_before_the_window_change_nothing() -> None:
    case = random_case(32, 3, [301], [3], options=Options(window=70))
    expected = case.expected()
    first = 298 - 69
    case.keys[0][:first] = np.nan
    case.values[0][:first] = np.inf
    fill_pages(case, 0)

    same_bits(attend(case, AVX2, tiled_items(case)), expected)
    same_bits(attend(case, AVX2, *split_items(case)), expected)


def test_a_window_of_one_shows_a_row_its_own_value() -> None:
    case = random_case(16, 2, [140], [30], options=Options(window=1))

    out = attend(case, AVX2, tiled_items(case))

    same_bits(out, np.repeat(case.values[0][110:], 2, axis=1))


def test_a_window_as_long_as_the_context_changes_nothing() -> None:
    case, windowed = straddling(Options()), straddling(Options(window=301))

    same_bits(attend(windowed, AVX2, tiled_items(windowed)), case.expected())


def test_the_reference_is_attention_with_all_options() -> None:
    options = Options(window=70, softcap=5.0, alibi=True, scale=0.25)
    case = random_case(32, 4, [300], [9], options=options)
    keys, values = (
        np.repeat(each[0].astype(np.float64), 4, 1) for each in (case.keys, case.values)
    )
    distance = np.arange(300) - np.arange(291, 300)[:, None]
    slopes = [2.0 ** -(head + 1) for head in range(8)]
    scores = 5 * np.tanh(np.einsum("rhd,nhd->rhn", case.queries, keys) * 0.25 / 5)
    scores += np.multiply.outer(slopes, distance).transpose(1, 0, 2)
    sees = (distance <= 0) & (distance > -70)
    weights = np.where(sees[:, None], np.exp(scores - scores.max()), 0)
    exact = np.einsum("rhn,nhd->rhd", weights / weights.sum(-1, keepdims=True), values)

    # Scores of at most 5 in size are 5 * 3e-7 away by tanh, 1e-6 by the products and 4e-6 by a bias
    # of up to 35; numerator and denominator are sums of 70 terms.
    tolerance = 2 * 8e-6 * abs(values).max()
    np.testing.assert_allclose(case.expected(), exact, rtol=0, atol=tolerance)


def test_slopes_of_heads_that_are_no_power_of_two_interleave() -> None:
    slopes = reference.alibi_slopes(40)

    np.testing.assert_allclose(slopes[:32], [2 ** (-(h + 1) / 4) for h in range(32)], rtol=1e-6)
    np.testing.assert_allclose(slopes[32:], [2 ** (-(h + 0.5) / 4) for h in range(8)], rtol=1e-6)
