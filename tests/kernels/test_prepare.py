"""Prepared activations: the reference's bits in every layout, for every share of the work."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.activation_layout import padded_k
from jit_kernels.isa import AVX2, NEON, Isa
from jit_kernels.kernels.prepare import prepare
from jit_kernels.reference import prepare as reference
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import SIZES, compiled, each_isa, run, same_bits

FORMS = ("f32", "i16", "i7", "i8")


def rows_of(num_rows: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num_rows, n)).astype(np.float32)


def prepared(
    isa: Isa, x: np.ndarray, form: str, group: int, row_tile: int, num_workers: int = 1
) -> list[reference.Prepared]:
    """What the kernel writes, one copy per worker; every operand is guarded."""
    num_rows, n = x.shape
    expected = reference.prepare(x, form, group, row_tile)
    shape, scales_shape = expected.words.shape, (num_rows, -(-n // group), 2)
    copies = num_workers if num_rows <= 4 else 1
    words = guarded(np.full((copies, *shape), -1, np.int32))
    scales = guarded(np.full((copies, *scales_shape), -1, np.float32))
    operands = (
        guarded(np.array([num_rows])), guarded(x), n, n, words, scales,
        words[0].nbytes, scales[0].nbytes,
    )  # fmt: skip
    run(compiled(prepare, isa, form=form, group=group, row_tile=row_tile), operands, num_workers)
    return [reference.Prepared(w, s) for w, s in zip(words, scales, strict=True)]


def check(actual: reference.Prepared, expected: reference.Prepared) -> None:
    same_bits(actual.words, expected.words)
    if expected.scales.size:
        same_bits(actual.scales, expected.scales)


@each_isa
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [*SIZES, 1024, 1025, 2130])  # pieces of a row are of 1,024
def test_one_row_has_the_bits_of_the_reference(isa: Isa, form: str, n: int) -> None:
    x = rows_of(1, n)

    (actual,) = prepared(isa, x, form, 64, 6)

    check(actual, reference.prepare(x, form, 64, 6))


@pytest.mark.parametrize("group", [96, 256, 1280])
@pytest.mark.parametrize("n", [1000, 2130])
def test_groups_of_any_length_are_those_of_the_reference(group: int, n: int) -> None:
    x = rows_of(2, n)

    for copy in prepared(AVX2, x, "i16", group, 6):
        check(copy, reference.prepare(x, "i16", group, 6))


@each_isa
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("row_tile", [6, 8])
@pytest.mark.parametrize("num_rows", [0, 4, 5, 9, 64, 65, 79])
def test_every_number_of_rows_is_laid_out_as_written_down(
    isa: Isa, form: str, row_tile: int, num_rows: int
) -> None:
    x = rows_of(num_rows, 83)

    copies = prepared(isa, x, form, 32, row_tile, num_workers=3)

    for copy in copies:
        check(copy, reference.prepare(x, form, 32, row_tile))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_rows", [1, 3, 7, 29])
def test_the_number_of_workers_changes_nothing(form: str, num_rows: int) -> None:
    x = rows_of(num_rows, 200)
    expected = reference.prepare(x, form, 128, 8)

    for num_workers in (1, 2, 5, 7):
        for copy in prepared(AVX2, x, form, 128, 8, num_workers):
            check(copy, expected)


@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_rows_and_strips_hold_the_same_numbers(group: int) -> None:
    x = rows_of(70, 300)
    width = padded_k(300) // 2  # words of i16
    (strips,) = prepared(AVX2, x, "i16", group, 6)

    words = strips.words.transpose(0, 2, 1).reshape(-1, width)[:70]

    for row in range(70):
        (alone,) = prepared(AVX2, x[row : row + 1], "i16", group, 6)
        same_bits(words[row : row + 1], alone.words)
        same_bits(strips.scales[row : row + 1], alone.scales)


@each_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_makes_its_group_nan(isa: Isa, bad: float) -> None:
    x = rows_of(1, 150)
    x[0, 70] = bad

    (actual,) = prepared(isa, x, "i16", 64, 6)

    assert np.isnan(actual.scales[0, 1]).all()
    assert np.isfinite(actual.scales[0, [0, 2]]).all()
    assert not actual.words[0, 32:64].any()


@each_isa
@pytest.mark.parametrize("largest", [0.0, 1e-40, 2.0**-101])
def test_a_group_of_next_to_nothing_is_zero(isa: Isa, largest: float) -> None:
    x = np.full((1, 40), largest, np.float32)

    (actual,) = prepared(isa, x, "i16", 64, 6)

    assert not actual.scales.any()
    assert not actual.words.any()


@each_isa
@pytest.mark.parametrize("largest", [2.0**-100, 1.0, 3.0e38])
def test_the_extremes_reach_32767_exactly(isa: Isa, largest: float) -> None:
    x = np.array([[largest, -largest, 0, largest / 2]], np.float32)

    (actual,) = prepared(isa, x, "i16", 64, 6)

    stored = actual.words.view(np.int16)[0, :4]
    assert stored.tolist() == [32767, 0, -32767, 16384]
    check(actual, reference.prepare(x, "i16", 64, 6))


def test_an_error_is_at_most_half_a_step() -> None:
    x = rows_of(2, 256)

    q, scales = reference.quantize(x, 64)

    steps = np.repeat(scales[..., 0], 64, axis=1).astype(np.float64)
    # rint errs by half a step; 1/32767 and the product err by 2^-23 of q, q <= 2^15: 2^-8 more.
    assert (np.abs(q * steps - x) <= steps * (0.5 + 2.0**-7)).all()


@pytest.mark.parametrize("form", FORMS)
def test_neon_code_is_emitted(form: str) -> None:
    code = prepare.specialise(form=form, group=64, row_tile=6)

    assert f"{code.symbol}:" in code.show("asm", NEON)
