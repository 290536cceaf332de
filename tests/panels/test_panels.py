"""Panels against the index formula of the layout, written out element by element."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from jit_kernels import panels
from jit_kernels.errors import ShapeError

IRREGULAR = [(1, 1), (7, 3), (15, 5), (16, 4), (17, 66), (33, 1003)]


def _expected(rows: NDArray[np.generic], per_word: int) -> NDArray[np.generic]:
    n, k = rows.shape
    expected = np.zeros((-(-n // 16), -(-k // per_word), 16, per_word), rows.dtype)
    for i in range(n):
        for j in range(k):
            expected[i // 16, j // per_word, i % 16, j % per_word] = rows[i, j]
    return expected


@pytest.mark.parametrize(("n", "k"), IRREGULAR)
def test_f32_panels_hold_each_weight_where_the_layout_says(n: int, k: int) -> None:
    rows = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
    packed = panels.pack_f32(rows)

    assert packed.dtype == np.float32
    assert packed.shape == (panels.num_panels(n), k, 16)
    np.testing.assert_array_equal(packed, _expected(rows, 1)[..., 0])
    np.testing.assert_array_equal(panels.unpack_f32(packed, n), rows)


@pytest.mark.parametrize(("n", "k"), IRREGULAR)
def test_bf16_panels_hold_pairs_along_k(n: int, k: int) -> None:
    rows = np.random.default_rng(n).integers(0, 1 << 16, (n, k), dtype=np.uint16)
    packed = panels.pack_bf16(rows)

    assert packed.dtype == np.uint16
    assert packed.shape == (panels.num_panels(n), panels.num_words(k, 16), 16, 2)
    np.testing.assert_array_equal(packed, _expected(rows, 2))
    np.testing.assert_array_equal(panels.unpack_bf16(packed, n, k), rows)


@pytest.mark.parametrize(("n", "k"), IRREGULAR)
def test_u8_panels_hold_quads_along_k(n: int, k: int) -> None:
    rows = np.random.default_rng(n).integers(0, 256, (n, k), dtype=np.uint8)
    packed = panels.pack_u8(rows)

    assert packed.dtype == np.uint8
    assert packed.shape == (panels.num_panels(n), panels.num_words(k, 8), 16, 4)
    np.testing.assert_array_equal(packed, _expected(rows, 4))
    np.testing.assert_array_equal(panels.unpack_u8(packed, n, k), rows)


@pytest.mark.parametrize(("n", "k"), IRREGULAR)
def test_u4_panels_hold_octets_whose_shifted_halves_are_pairs_of_u8_words(n: int, k: int) -> None:
    rows = np.random.default_rng(n).integers(0, 16, (n, k), dtype=np.uint8)
    packed = panels.pack_u4(rows)
    octets = _expected(rows, 8)

    assert packed.dtype == np.uint8
    assert packed.shape == (panels.num_panels(n), panels.num_words(k, 4), 16, 4)
    halves = packed.view("<u2")
    for shift, pair in enumerate([(0, 2), (1, 3), (4, 6), (5, 7)]):
        np.testing.assert_array_equal(halves >> 4 * shift & 15, octets[..., pair])
    np.testing.assert_array_equal(panels.unpack_u4(packed, n, k), rows)


def test_an_element_beyond_four_bits_is_refused() -> None:
    with pytest.raises(ShapeError, match="hold 0 to 15, but the array holds 16"):
        panels.pack_u4(np.full((1, 1), 16, np.uint8))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("n", "groups"), [(1, 1), (17, 3), (48, 9)])
def test_group_values_are_interleaved_like_the_columns(n: int, groups: int, dtype: type) -> None:
    rows = np.random.default_rng(n).standard_normal((n, groups)).astype(dtype)
    packed = panels.pack_groups(rows)

    assert packed.dtype == dtype
    np.testing.assert_array_equal(packed, _expected(rows, 1)[..., 0])
    np.testing.assert_array_equal(panels.unpack_groups(packed, n), rows)


def test_packing_by_blocks_of_rows_equals_packing_at_once() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (83, 45), dtype=np.uint8)
    blocks = [panels.pack_u8(rows[start : start + 32]) for start in range(0, 83, 32)]

    np.testing.assert_array_equal(np.concatenate(blocks), panels.pack_u8(rows))


def test_rows_that_are_not_contiguous_are_packed_by_value() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (20, 60), dtype=np.uint8)[:, ::3]

    np.testing.assert_array_equal(panels.pack_u8(rows), panels.pack_u8(rows.copy()))


def test_rounding_to_bf16_is_to_nearest_even_and_keeps_nan() -> None:
    bits = [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800001, 0xFFFFFFFF]
    values = np.array(bits, np.uint32).view(np.float32)

    expected = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7FC0, 0x7FC0]
    assert panels.to_bf16(values).tolist() == expected


def test_every_bf16_value_survives_widening_and_rounding() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    numbers = bits[~np.isnan(panels.from_bf16(bits))]

    np.testing.assert_array_equal(panels.to_bf16(panels.from_bf16(numbers)), numbers)


def test_another_dtype_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="float32, but the array is .* float64"):
        panels.pack_f32(np.zeros((16, 4)))  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(("k", "group", "expected"), [(576, 64, 9), (577, 64, 10), (7, "row", 1)])
def test_a_tail_group_counts_as_a_group(k: int, group: int | str, expected: int) -> None:
    assert panels.num_groups(k, group) == expected


@pytest.mark.parametrize("group", [0, -64, "column"])
def test_a_nonsense_group_size_is_refused(group: int | str) -> None:
    with pytest.raises(ShapeError, match="group size"):
        panels.num_groups(64, group)
