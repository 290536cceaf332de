"""RMSNorm: the reference's bits, alone and into a linear's input."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import AVX2, NEON, Isa
from jit_kernels.kernels.rmsnorm import rmsnorm, rmsnorm_prepare
from jit_kernels.reference import prepare as prepare_reference
from jit_kernels.reference.rmsnorm import rmsnorm as exact
from jit_kernels.reference.rmsnorm import rmsnorm_bits
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import SIZES, compiled, each_isa, run, same_bits

EPS = 1e-5


def operands_of(num_rows: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, n)) * rng.uniform(0.1, 30, (num_rows, 1))
    return x.astype(np.float32), rng.uniform(0.5, 2, n).astype(np.float32)


def normalised(isa: Isa, x: np.ndarray, weight: np.ndarray, num_workers: int = 1) -> np.ndarray:
    num_rows, n = x.shape
    out = guarded(np.full_like(x, -1))
    rows = guarded(np.array([num_rows]))
    run(compiled(rmsnorm, isa), (rows, guarded(x), n, guarded(weight), EPS, n, out, n), num_workers)
    return out


@each_isa
@pytest.mark.parametrize("n", SIZES)
def test_rows_have_the_bits_of_the_reference(isa: Isa, n: int) -> None:
    x, weight = operands_of(3, n)

    same_bits(normalised(isa, x, weight, num_workers=2), rmsnorm_bits(x, weight, EPS))


@pytest.mark.parametrize("n", SIZES)
def test_the_reference_is_close_to_float64(n: int) -> None:
    x, weight = operands_of(5, n)
    # All terms of the sum are positive: n/16 + 4 roundings of at most 2^-24 each, halved by the
    # root; then five roundings of one operation each.
    bound = ((n / 16 + 5) / 2 + 6) * 2.0**-24

    actual, expected = rmsnorm_bits(x, weight, EPS), exact(x, weight, EPS)

    assert np.max(np.abs(actual / expected - 1)) <= bound


def test_normalising_in_place_changes_nothing() -> None:
    x, weight = operands_of(4, 83)
    expected = normalised(AVX2, x, weight)

    run(compiled(rmsnorm, AVX2), (np.array([4]), x, 83, weight, EPS, 83, x, 83))

    same_bits(x, expected)


@each_isa
@pytest.mark.parametrize("form", ["f32", "i16"])
@pytest.mark.parametrize("num_rows", [1, 6, 11])
def test_prepared_rows_are_the_prepared_reference(isa: Isa, form: str, num_rows: int) -> None:
    x, weight = operands_of(num_rows, 147)
    expected = prepare_reference.prepare(rmsnorm_bits(x, weight, EPS), form, 64, 8)

    words, scales = prepared(isa, x, weight, num_rows, form)

    same_bits(words, expected.words)
    if form == "i16":
        same_bits(scales, expected.scales)


def prepared(
    isa: Isa, x: np.ndarray, weight: np.ndarray, num_rows: int, form: str
) -> tuple[np.ndarray, np.ndarray]:
    n = x.shape[1]
    like = prepare_reference.prepare(x[:num_rows], form, 64, 8)
    words = guarded(np.full_like(like.words, -1))
    scales = guarded(np.full((num_rows, -(-n // 64), 2), -1, np.float32))
    operands = (
        guarded(np.array([num_rows])), guarded(x), n, guarded(weight), EPS, n, words, scales, 0, 0,
    )  # fmt: skip
    code = compiled(rmsnorm_prepare, isa, form=form, group=64, row_tile=8)
    run(code, operands, num_workers=2)
    return words, scales


@each_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_stays_so_and_spoils_no_other(isa: Isa, bad: float) -> None:
    x, weight = operands_of(3, 100)
    x[1, 42] = bad

    actual = normalised(isa, x, weight)

    assert not np.isfinite(actual[1]).all()
    assert np.isfinite(actual[[0, 2]]).all()


@each_isa
def test_padding_is_zero_even_in_a_row_of_nan(isa: Isa) -> None:
    x, weight = operands_of(1, 147)
    x[0, 3] = np.nan

    words, _ = prepared(isa, x, weight, 1, "f32")

    assert words.view(np.float32)[0, 147:].tolist() == [0] * 13


def test_neon_code_is_emitted() -> None:
    code = rmsnorm.specialise()

    assert f"{code.symbol}:" in code.show("asm", NEON)
