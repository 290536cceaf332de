"""Attention over keys and values of bf16 and int8: the reference's bits, and how near they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jit_kernels.isa import AVX2, Isa
from jit_kernels.kernels.attention_key_bias import segment_angles
from jit_kernels.kv_layout import KV_FORMATS, LARGEST_KEY_CODE, largest_query_code
from jit_kernels.reference.kv_cache import stored_keys, stored_values
from tests.every_pair import every_pair
from tests.kernels.attention_cases import (
    Case,
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

BF16, INT8 = Options(kv_format="bf16"), Options(kv_format="int8")
BIASED = Options(kv_format="int8", key_bias=3.0)
EVERYTHING = replace(BIASED, window=70, softcap=5.0)
each_format = pytest.mark.parametrize(
    "options", [BF16, INT8, BIASED, EVERYTHING], ids=["bf16", "int8", "biased", "everything"]
)


@each_fast_isa
@each_format
def test_every_format_gives_the_reference_bits(isa: Isa, options: Options) -> None:
    case = straddling(options)
    expected = case.expected()

    same_bits(attend(case, isa, tiled_items(case), place=guarded), expected)
    same_bits(attend(case, isa, *split_items(case), place=guarded), expected)


@pytest.mark.slow
@each_format
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
def test_every_head_size_gives_the_reference_bits(options: Options, head_dim: int) -> None:
    case = straddling(options, head_dim)
    expected = case.expected()

    same_bits(attend(case, AVX2, tiled_items(case), place=guarded), expected)
    same_bits(attend(case, AVX2, *split_items(case), place=guarded), expected)


EVERY_OPTION: dict[str, tuple[Any, ...]] = {
    "head_dim": (64, 80, 96, 128, 256),
    "heads": ((1, 2), (3, 2), (4, 1)),  # for each kv head, and how many of those
    "window": (None, 70),
    "softcap": (None, 5.0),
    "alibi": (False, True),
    "kv_format": KV_FORMATS,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", every_pair(EVERY_OPTION), ids=lambda chosen: "-".join(map(str, chosen.values()))
)
def test_every_two_options_together_give_the_reference_bits(chosen: dict[str, Any]) -> None:
    head_dim, (heads_per_kv, num_kv_heads) = chosen["head_dim"], chosen["heads"]
    options = Options(
        chosen["window"], chosen["softcap"], chosen["alibi"], kv_format=chosen["kv_format"]
    )
    case = random_case(
        head_dim, heads_per_kv, (157, 41, 301), (20, 41, 1),
        num_kv_heads=num_kv_heads, options=options,
    )  # fmt: skip
    expected = case.expected()

    same_bits(attend(case, AVX2, tiled_items(case), place=guarded), expected)
    same_bits(attend(case, AVX2, *split_items(case), place=guarded), expected)


@each_format
def test_tiles_threads_and_old_pages_change_no_bit(options: Options) -> None:
    case = straddling(options)
    expected = case.expected()

    same_bits(attend(case, AVX2, tiled_items(case, 5)), expected)
    same_bits(attend_with_threads(case, *split_items(case), 3, chaos_seed=2), expected)
    case.pages[:] = 0x7F
    for request in range(3):
        fill_pages(case, request)
    same_bits(attend(case, AVX2, tiled_items(case)), expected)


@pytest.mark.parametrize("head_dim", [64, 256])
@pytest.mark.parametrize("options", [BF16, INT8, BIASED], ids=["bf16", "int8", "biased"])
def test_a_kernel_is_near_attention_over_what_is_kept(options: Options, head_dim: int) -> None:
    case, kv_format = random_case(head_dim, 3, [301], [40], options=options), options.kv_format
    kept = stored_keys(case.keys[0], kv_format), stored_values(case.values[0], kv_format)
    keys, values = (np.repeat(each.dequantised(), 3, axis=1) for each in kept)
    if case.key_bias is not None:
        keys = keys + np.repeat(_turned_bias(case), 3, axis=1)
    scores = np.einsum("rhd,nhd->rhn", case.queries.astype(np.float64), keys) * head_dim**-0.5
    sees = np.arange(261, 301)[:, None] >= np.arange(301)
    scores = np.where(sees[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    exact = np.einsum("rhn,nhd->rhd", weights / weights.sum(-1, keepdims=True), values)

    found = attend(case, AVX2, tiled_items(case))

    # Codes of a query are off by 1 / 32,766 of its largest element at most, weights by 1 / 65,534.
    assert np.abs(found - exact).max() <= 3e-4


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@each_fast_isa
def test_sums_of_the_largest_codes_fit_their_words(isa: Isa, head_dim: int) -> None:
    case = random_case(head_dim, 2, [260], [20], num_kv_heads=1, options=INT8)
    case.queries[:] = 3.0
    case.keys[0][:] = 2.0
    case.values[0][:] = -1.0
    fill_pages(case, 0)
    expected = case.expected()

    same_bits(attend(case, isa, tiled_items(case)), expected)
    np.testing.assert_allclose(expected, -1.0, rtol=1e-4)
    assert largest_query_code(head_dim) * (LARGEST_KEY_CODE + 1) * head_dim < 2**31


def test_a_segment_s_weights_keep_what_codes_of_sixteen_bits_can() -> None:
    case = random_case(64, 1, [128], [1], num_kv_heads=1, options=INT8)
    case.keys[0][:] = 0.0
    case.values[0][:] = 1.0
    case.values[0][5] = 1000.0  # its weight is a thousand times the others'
    fill_pages(case, 0)

    found = attend(case, AVX2, tiled_items(case))
    np.testing.assert_allclose(found, (127 + 1000) / 128, rtol=2e-3)


def _turned_bias(case: Case) -> np.ndarray:
    """The bias as it stands in every key [n, KV, D], in float64."""
    assert case.key_bias is not None
    b1, b2 = np.split(case.key_bias.bias.astype(np.float64), 2, axis=-1)
    cos, sin = (each.astype(np.float64)[:, None] for each in (case.key_bias.cos, case.key_bias.sin))
    return np.concatenate([b1 * cos - b2 * sin, b2 * cos + b1 * sin], axis=-1)


@pytest.mark.parametrize("part", ["keys", "values"])
def test_a_head_that_is_not_finite_spoils_the_rows_that_see_it(part: str) -> None:
    case = straddling(INT8)
    clean = case.expected()
    {"keys": case.keys, "values": case.values}[part][0][131, :, 5] = np.inf
    fill_pages(case, 0)

    out = attend(case, AVX2, tiled_items(case))

    assert np.isnan(out[131 - 95 : 62]).all()
    same_bits(np.delete(out, range(131 - 95, 62), 0), np.delete(clean, range(131 - 95, 62), 0))


def test_angles_of_a_segment_have_no_gain_and_stop_where_tables_do() -> None:
    angle = np.outer(np.arange(100), [1.0, 0.1])
    cos, sin = (1.2 * np.cos(angle)).astype(np.float32), (1.2 * np.sin(angle)).astype(np.float32)

    angles = segment_angles(cos, sin)

    exact = np.vstack([np.cos(angle).T, np.sin(angle).T])
    np.testing.assert_allclose(angles[:, :100], exact, rtol=0, atol=3e-7)
    assert not angles[:, 100:].any()
