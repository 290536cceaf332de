"""InstantQuant against its error bound: half a step, and 1/8 step more with float16 scales."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dashinfer_lab.errors import ConversionError
from dashinfer_lab.quantize import GroupSize, ScaleType, dequantize, quantize_rows

GROUPS: list[GroupSize] = [32, 64, 128, 256, 512, "row"]


def _error_in_steps(
    rows: NDArray[np.float32], group: GroupSize, scale_type: ScaleType, bits: int = 8
) -> float:
    """Return the largest error, in steps of the exact range over 255 (or 15) of its group."""
    quantized = quantize_rows(rows, group, scale_type, bits)
    assert quantized is not None
    error = np.abs(dequantize(quantized, group).astype(np.float64) - rows)
    k = rows.shape[1]
    length = k if group == "row" else group
    worst = 0.0
    for start in range(0, k, length):
        part = rows[:, start : start + length].astype(np.float64)
        step = (part.max(axis=1) - part.min(axis=1)) / (2**bits - 1)
        worst = max(worst, float((error[:, start : start + length].max(axis=1) / step).max()))
    return worst


def _gaussian(n: int, k: int) -> NDArray[np.float32]:
    return (np.random.default_rng(k).standard_normal((n, k)) * 0.02).astype(np.float32)


# The exact bound is 1/2 step; the rest is float32 rounding of a value up to 255 steps from the
# minimum, which itself lies up to 255 steps from zero: 4 operations * 510 * 2^-24.
ROUNDING = 4 * 510 * 2.0**-24


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("k", [1003, 513, 65, 576])
def test_every_weight_comes_back_within_half_a_step(group: GroupSize, k: int) -> None:
    rows = _gaussian(17, k)
    rows[3, 5] *= 100  # one outlier must not disturb other groups

    tail = k % (k if group == "row" else group)
    assert tail != 1 or _tail_is_exact(rows, group)
    whole = rows[:, :-1] if tail == 1 else rows
    assert _error_in_steps(whole, group, np.float32) <= 0.5 + ROUNDING


def _tail_is_exact(rows: NDArray[np.float32], group: GroupSize) -> bool:
    quantized = quantize_rows(rows, group, np.float32)
    assert quantized is not None
    return bool(np.array_equal(dequantize(quantized, group)[:, -1], rows[:, -1]))


@pytest.mark.parametrize("group", GROUPS)
def test_float16_scales_add_at_most_an_eighth_of_a_step(group: GroupSize) -> None:
    assert _error_in_steps(_gaussian(33, 1000), group, np.float16) <= 0.625 + ROUNDING


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("scale_type", "steps"), [(np.float32, 0.5), (np.float16, 0.625)])
def test_four_bits_keep_the_same_bounds_in_their_wider_steps(
    group: GroupSize, scale_type: ScaleType, steps: float
) -> None:
    rows = _gaussian(33, 1000)
    quantized = quantize_rows(rows, group, scale_type, 4)

    assert quantized is not None
    assert (quantized.codes.min(), quantized.codes.max()) == (0, 15)
    assert _error_in_steps(rows, group, scale_type, 4) <= steps + ROUNDING


def test_four_bits_lose_an_eighth_less_in_groups_of_32_than_of_64() -> None:
    rows = np.random.default_rng(0).standard_normal((256, 2048)).astype(np.float32)
    errors: dict[int, float] = {}
    for group in (32, 64):
        quantized = quantize_rows(rows, group, np.float16, 4)
        assert quantized is not None
        errors[group] = float(np.sqrt(np.mean((dequantize(quantized, group) - rows) ** 2)))

    # A step is a fifteenth of the range of 32 (or 64) Gaussian numbers, 4.1 (4.7); over 12**0.5.
    assert errors[32] == pytest.approx(0.078, abs=0.002)
    assert errors[64] == pytest.approx(0.090, abs=0.002)


def test_the_scale_is_the_range_over_255_and_the_minimum_the_least_weight() -> None:
    rows = np.linspace(-1, 2, 64, dtype=np.float32)[None]
    quantized = quantize_rows(rows, 64, np.float32)

    assert quantized is not None
    assert quantized.scale.tolist() == [[np.float32(3 / 255)]]
    assert quantized.minimum.tolist() == [[-1.0]]
    assert quantized.codes[0, [0, -1]].tolist() == [0, 255]


@pytest.mark.parametrize("value", [0.0, 0.3, -7.1e-42, 65504.0, 1e30])
def test_a_constant_group_is_reproduced_exactly(value: float) -> None:
    rows = np.full((16, 96), value, np.float32)
    quantized = quantize_rows(rows, 64, np.float32)

    assert quantized is not None
    assert not quantized.codes.any()
    assert not quantized.scale.any()
    np.testing.assert_array_equal(dequantize(quantized, 64), rows)


def test_a_zero_group_fits_float16_and_a_constant_it_cannot_hold_does_not() -> None:
    assert quantize_rows(np.zeros((16, 64), np.float32), 64, np.float16) is not None
    assert quantize_rows(np.full((16, 64), 0.3, np.float32), 64, np.float16) is None


def test_a_narrow_group_far_from_zero_needs_float32() -> None:
    rows = np.linspace(1.00, 1.01, 128, dtype=np.float32)[None]

    assert quantize_rows(rows, 64, np.float16) is None
    # Steps near 2^-15 of values near 1: one rounding of 2^-24 is 2^-9 step; 4 operations.
    assert _error_in_steps(rows, 64, np.float32) <= 0.5 + 4 * 2.0**-8


@pytest.mark.parametrize("span", [1e-45, 4e-45, 2e-43, 3.6e-43, 5.3e-43, 1e-40, 3e-38])
def test_subnormal_groups_come_back_within_one_smallest_number(span: float) -> None:
    rows = np.linspace(0, span, 64, dtype=np.float32)[None]
    quantized = quantize_rows(rows, 64, np.float32)

    assert quantized is not None
    # Half of a scale that was rounded up by at most one smallest number.
    allowed = span / 255 / 2 + float(np.finfo(np.float32).smallest_subnormal)
    assert np.abs(dequantize(quantized, 64) - rows).max() <= allowed


def test_one_coarse_group_alone_decides_against_float16() -> None:
    rows = _gaussian(16, 640)
    rows[7, 576:] = 1.0 + rows[7, 576:] * 0.01

    assert quantize_rows(rows[:, :576], 64, np.float16) is not None
    assert quantize_rows(rows, 64, np.float16) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(value: float) -> None:
    rows = _gaussian(3, 100)
    rows[2, 99] = value

    with pytest.raises(ConversionError, match="not finite"):
        quantize_rows(rows, 64, np.float32)


def test_a_range_beyond_float32_is_refused() -> None:
    rows = np.array([[-3e38, 3e38]], np.float32)

    with pytest.raises(ConversionError, match="span more than float32"):
        quantize_rows(rows, 64, np.float32)


_finite = st.floats(-1e6, 1e6, width=32, allow_subnormal=True)


@settings(deadline=None, max_examples=60)
@given(arrays(np.float32, (3, 37), elements=_finite), st.sampled_from([32, 64]))
def test_any_weights_come_back_within_half_a_step_and_rounding(
    rows: NDArray[np.float32], group: GroupSize
) -> None:
    quantized = quantize_rows(rows, group, np.float32)

    assert quantized is not None
    length = 37 if group == "row" else group
    error = np.abs(dequantize(quantized, group).astype(np.float64) - rows)
    for start in range(0, 37, length):
        part = rows[:, start : start + length].astype(np.float64)
        step = (part.max(axis=1) - part.min(axis=1))[:, None] / 255
        # Four roundings of numbers no larger than the group's largest or its range.
        largest = np.abs(part).max(axis=1)[:, None] + step * 255
        allowed = step / 2 + 4 * 2.0**-24 * largest + 2e-45
        assert np.all(error[:, start : start + length] <= allowed)
