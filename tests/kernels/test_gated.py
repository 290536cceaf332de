"""SwiGLU and GeGLU into a linear's input: the reference's bits, and close to float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from jit_kernels.activation_layout import GEMV_ROWS, UNTILED
from jit_kernels.errors import TraceError
from jit_kernels.isa import AVX2, Isa
from jit_kernels.kernel import Kernel
from jit_kernels.kernels.geglu import geglu_prepare
from jit_kernels.kernels.swiglu import swiglu_prepare
from jit_kernels.reference import prepare as prepare_reference
from jit_kernels.reference.geglu import geglu, geglu_bits
from jit_kernels.reference.swiglu import swiglu, swiglu_bits
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import SIZES, compiled, each_isa, run, same_bits

Pair = tuple[np.ndarray, np.ndarray]


class Unit(NamedTuple):
    """A gated unit's kernel and the bits it owes."""

    kernel: Kernel
    bits: Callable[[np.ndarray, np.ndarray], np.ndarray]


UNITS = {"swiglu": Unit(swiglu_prepare, swiglu_bits), "geglu": Unit(geglu_prepare, geglu_bits)}
each_unit = pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
each_form = pytest.mark.parametrize("form", ["f32", "i16"])


def operands_of(num_rows: int, n: int) -> Pair:
    rng = np.random.default_rng(n)
    gate, up = rng.standard_normal((2, num_rows, n)).astype(np.float32)
    return gate * np.float32(4), up


def prepared(
    unit: Unit,
    isa: Isa,
    gate: np.ndarray,
    up: np.ndarray,
    form: str,
    *,
    by_product: str = "",
) -> Pair:
    num_rows, n = gate.shape
    like = prepare_reference.prepare(gate, form, 64, 6)
    words = guarded(np.full_like(like.words, -1))
    scales = guarded(np.full((num_rows, -(-n // 64), 2), -1, np.float32))
    rows, gate, up = guarded(np.array([num_rows])), guarded(gate), guarded(up)
    code = compiled(unit.kernel, isa, form=form, group=64, row_tile=6, by_product=by_product)
    run(code, (rows, gate, up, n, n, words, scales, 0, 0), num_workers=2)
    return words, scales


@each_isa
@each_unit
@each_form
@pytest.mark.parametrize("n", SIZES)
def test_prepared_rows_are_the_prepared_reference(isa: Isa, unit: Unit, form: str, n: int) -> None:
    gate, up = operands_of(2, n)
    expected = prepare_reference.prepare(unit.bits(gate, up), form, 64, 6)

    words, scales = prepared(unit, isa, gate, up, form)

    same_bits(words, expected.words)
    if form == "i16":
        same_bits(scales, expected.scales)


@each_isa
@each_unit
@each_form
def test_strips_are_the_prepared_reference(isa: Isa, unit: Unit, form: str) -> None:
    gate, up = operands_of(11, 83)
    expected = prepare_reference.prepare(unit.bits(gate, up), form, 64, 6)

    words, _ = prepared(unit, isa, gate, up, form)

    same_bits(words, expected.words)


@each_unit
@each_form
def test_units_that_the_product_made_are_prepared_as_they_are(unit: Unit, form: str) -> None:
    for num_rows in (GEMV_ROWS, GEMV_ROWS + 1):
        gate, up = operands_of(num_rows, 83)
        units = unit.bits(gate, up) if num_rows <= GEMV_ROWS else gate
        expected = prepare_reference.prepare(units, form, 64, 6)

        words, _ = prepared(unit, AVX2, gate, up, form, by_product="units")

        same_bits(words, expected.words)


@each_unit
@each_form
def test_rows_that_the_product_prepared_are_left_alone(unit: Unit, form: str) -> None:
    for num_rows in (GEMV_ROWS, GEMV_ROWS + 1):
        gate, up = operands_of(num_rows, 83)
        expected = prepare_reference.prepare(unit.bits(gate, up), form, 64, 6)

        words, _ = prepared(unit, AVX2, gate, up, form, by_product="rows")

        same_bits(words, expected.words if num_rows <= GEMV_ROWS else np.full_like(words, -1))


@each_unit
def test_rows_that_are_not_in_strips_have_no_units_made_before(unit: Unit) -> None:
    with pytest.raises(TraceError, match="the same whatever their number"):
        compiled(unit.kernel, AVX2, form="i16", group=64, row_tile=UNTILED, by_product="units")


def test_the_reference_of_swiglu_is_close_to_float64() -> None:
    gate, up = operands_of(7, 1003)
    # exp errs by 2e-7; the sum, the quotient and the two products by 2^-24 each.
    bound = 2e-7 + 4 * 2.0**-24

    actual, expected = swiglu_bits(gate, up), swiglu(gate, up)

    assert np.max(np.abs(actual / expected - 1)) <= bound


def test_the_reference_of_geglu_is_close_to_float64() -> None:
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


@each_unit
@pytest.mark.parametrize(
    ("gate", "expected"),
    [(0.0, 0.0), (100.0, 300.0), (-100.0, 0.0), (np.inf, np.inf), (-np.inf, np.nan)],
)
def test_saturated_gates_pass_or_stop(unit: Unit, gate: float, expected: float) -> None:
    actual = unit.bits(np.array([gate], np.float32), np.array([3], np.float32))

    np.testing.assert_array_equal(actual, np.float32([expected]))


@each_isa
@each_unit
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_reaches_the_scale(isa: Isa, unit: Unit, bad: float) -> None:
    gate, up = operands_of(1, 130)
    gate[0, 129] = bad

    _, scales = prepared(unit, isa, gate, up, "i16")

    assert np.isnan(scales[0, 2]).all()
    assert np.isfinite(scales[0, :2]).all()
