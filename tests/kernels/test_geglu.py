"""GeGLU into a linear's input: the reference's bits, and close to float64."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import Isa
from jit_kernels.kernels.geglu import geglu_prepare
from jit_kernels.reference import prepare as prepare_reference
from jit_kernels.reference.geglu import geglu, geglu_bits
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import SIZES, compiled, each_isa, run, same_bits


def operands_of(num_rows: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    gate, up = rng.standard_normal((2, num_rows, n)).astype(np.float32)
    return gate * np.float32(4), up


def prepared(
    isa: Isa, gate: np.ndarray, up: np.ndarray, form: str
) -> tuple[np.ndarray, np.ndarray]:
    num_rows, n = gate.shape
    like = prepare_reference.prepare(gate, form, 64, 6)
    words = guarded(np.full_like(like.words, -1))
    scales = guarded(np.full((num_rows, -(-n // 64), 2), -1, np.float32))
    rows, gate, up = guarded(np.array([num_rows])), guarded(gate), guarded(up)
    code = compiled(geglu_prepare, isa, form=form, group=64, row_tile=6)
    run(code, (rows, gate, up, n, n, words, scales, 0, 0), num_workers=2)
    return words, scales


@each_isa
@pytest.mark.parametrize("form", ["f32", "i16"])
@pytest.mark.parametrize("n", SIZES)
def test_prepared_rows_are_the_prepared_reference(isa: Isa, form: str, n: int) -> None:
    gate, up = operands_of(2, n)
    expected = prepare_reference.prepare(geglu_bits(gate, up), form, 64, 6)

    words, scales = prepared(isa, gate, up, form)

    same_bits(words, expected.words)
    if form == "i16":
        same_bits(scales, expected.scales)


def test_the_reference_is_close_to_float64() -> None:
    rng = np.random.default_rng(7)
    gate = rng.uniform(-6, 9, 20_003).astype(np.float32)
    up = rng.standard_normal(20_003).astype(np.float32)
    # The argument of exp is below 22 where the result is above 1e-9 and errs by 4 roundings of
    # it; exp by 2e-7; the sum, the quotient and two products by 2^-24 each.
    bound = 22 * 4 * 2.0**-24 + 2e-7 + 4 * 2.0**-24

    actual, expected = geglu_bits(gate, up), geglu(gate, up)

    # Where tanh is -1 to within float64, the difference of 1 + tanh loses digits in `expected`.
    kept = gate > -4
    assert np.max(np.abs(actual[kept] / expected[kept] - 1)) <= bound
    assert np.max(np.abs(actual - expected)) <= 1e-5


@pytest.mark.parametrize(
    ("gate", "expected"),
    [(0.0, 0.0), (100.0, 300.0), (-100.0, 0.0), (np.inf, np.inf), (-np.inf, np.nan)],
)
def test_saturated_gates_pass_or_stop(gate: float, expected: float) -> None:
    actual = geglu_bits(np.array([gate], np.float32), np.array([3], np.float32))

    np.testing.assert_array_equal(actual, np.float32([expected]))


@each_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_reaches_the_scale(isa: Isa, bad: float) -> None:
    gate, up = operands_of(1, 130)
    gate[0, 129] = bad

    _, scales = prepared(isa, gate, up, "i16")

    assert np.isnan(scales[0, 2]).all()
    assert np.isfinite(scales[0, :2]).all()
