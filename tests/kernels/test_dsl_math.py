"""exp, log, sigmoid, tanh, bf16, the fixed tree: exact cases, stated errors, equal bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jit_kernels import dsl
from jit_kernels.dsl import Array, Value, running_sum, vectorized
from jit_kernels.dsl.accumulators import RunningMax
from jit_kernels.isa import NEON, Isa
from jit_kernels.kernel import kernel
from jit_kernels.panels import from_bf16, to_bf16
from jit_kernels.reference import arithmetic
from jit_kernels.types import F32, I64, U16
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import ISAS, SIZES, compiled, each_isa, same_bits

FUNCTIONS: dict[str, Callable[[Value[F32]], Value[F32]]] = {
    "exp": dsl.exp,
    "log": dsl.log,
    "sigmoid": dsl.sigmoid,
    "tanh": dsl.tanh,
}


@kernel
def evaluate(y: Array[F32], x: Array[F32], n: Value[I64], *, function: str) -> None:
    for i in vectorized(n):
        y[i] = FUNCTIONS[function](x[i])


@kernel
def evaluate_scalars(y: Array[F32], x: Array[F32], n: Value[I64], *, function: str) -> None:
    for i in dsl.loop(n):
        y[i] = FUNCTIONS[function](x[i])


@kernel
def multiply_add(y: Array[F32], a: Array[F32], b: Array[F32], c: Array[F32], n: Value[I64]) -> None:
    for i in vectorized(n):
        y[i] = dsl.fma(a[i], b[i], c[i])


@kernel
def narrow(y: Array[U16], wide: Array[F32], x: Array[F32], n: Value[I64]) -> None:
    for i in vectorized(n):
        y[i] = dsl.round_to_bf16(x[i])
        wide[i] = dsl.bf16_to_f32(y[i])


@kernel
def reduce(y: Array[F32], x: Array[F32], n: Value[I64]) -> None:
    total, squares, largest = running_sum(), running_sum(), RunningMax(F32, float("-inf"))
    for i in vectorized(n):
        total += x[i]
        squares.add_product(x[i], x[i])
        largest.update(x[i])
    y[0], y[1], y[2] = total.value(), squares.value(), largest.value()


def value_of(isa: Isa, function: str, x: np.ndarray) -> np.ndarray:
    y = guarded(np.full_like(x, -1))
    compiled(evaluate, isa, function=function)(y, guarded(x), len(x))
    return y


def ordinary(function: str) -> np.ndarray:
    """Arguments all over the range on which the error is stated."""
    rng = np.random.default_rng(5)
    if function == "log":
        return np.exp2(rng.uniform(-126, 127.9, 20_003)).astype(np.float32)
    return rng.uniform(-87.3, 88.7, 20_003).astype(np.float32)


@each_isa
def test_exp_is_exact_where_it_must_be(isa: Isa) -> None:
    x = np.array([0, -0.0, -np.inf, np.inf, -88, 89, 3.4e38, -3.4e38, np.nan], np.float32)

    actual = value_of(isa, "exp", x)

    assert actual[:8].tolist() == [1, 1, 0, np.inf, 0, np.inf, np.inf, 0]
    assert np.isnan(actual[8])


@each_isa
def test_log_of_one_is_zero(isa: Isa) -> None:
    assert value_of(isa, "log", np.ones(3, np.float32)).tolist() == [0, 0, 0]


@each_isa
def test_sigmoid_saturates_and_keeps_nan(isa: Isa) -> None:
    x = np.array([0, 100, -100, np.inf, -np.inf, np.nan], np.float32)

    actual = value_of(isa, "sigmoid", x)

    assert actual[:5].tolist() == [0.5, 1, 0, 1, 0]
    assert np.isnan(actual[5])


@each_isa
def test_sigmoid_is_zero_where_it_would_be_no_normal_number(isa: Isa) -> None:
    lowest = np.float32(-87.33654)
    x = np.array([lowest, np.nextafter(lowest, np.float32(-np.inf)), -88.5, -1e30], np.float32)

    actual = value_of(isa, "sigmoid", x)

    assert actual[0] >= np.finfo(np.float32).tiny
    assert actual[1:].tolist() == [0, 0, 0]


@each_isa
def test_tanh_saturates_and_errs_by_what_exp_and_three_roundings_do(isa: Isa) -> None:
    x = np.concatenate([np.linspace(-9, 9, 5_001), [0, 100, -100, np.inf, -np.inf, np.nan]])
    x = x.astype(np.float32)

    actual = value_of(isa, "tanh", x)

    assert np.abs(actual[:-6] - np.tanh(x[:-6].astype(np.float64))).max() < 2e-7
    assert actual[-6:-1].tolist() == [0, 1, -1, 1, -1]
    assert np.isnan(actual[-1])


@each_isa
@pytest.mark.parametrize(
    ("function", "exact", "bound"),
    [
        ("exp", np.exp, 2e-7),
        # exp's error weighs at most 1, and the sum and the quotient round by 2^-24 each.
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 2e-7 + 2 * 2.0**-24),
    ],
)
def test_the_relative_error_is_as_stated(
    isa: Isa, function: str, exact: Callable[[np.ndarray], np.ndarray], bound: float
) -> None:
    x = ordinary(function)

    expected = exact(x.astype(np.float64))

    assert np.max(np.abs(value_of(isa, function, x) / expected - 1)) < bound


@each_isa
def test_log_errs_by_less_than_two_units_in_the_last_place(isa: Isa) -> None:
    x = np.concatenate([ordinary("log"), np.linspace(0.5, 2, 5_001, dtype=np.float32)])
    expected = np.log(x.astype(np.float64))

    error = np.abs(value_of(isa, "log", x) - expected)

    assert (error <= 2 * np.spacing(np.abs(expected).astype(np.float32))).all()


@each_isa
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_have_the_bits_of_the_reference(isa: Isa, function: str) -> None:
    x = ordinary(function)

    with np.errstate(over="ignore"):
        expected = getattr(arithmetic, function)(x)

    same_bits(value_of(isa, function, x), expected)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_any_bits_give_the_same_result_on_every_instruction_set(function: str) -> None:
    random = np.random.default_rng(6).integers(0, 2**32, 20_003, dtype=np.uint32)
    x = random.view(np.float32)
    if function == "log":
        x = np.abs(x[np.isfinite(x) & (np.abs(x) >= 2.0**-126)])

    first, *others = (value_of(isa, function, x) for isa in ISAS)

    for other in others:
        same_bits(other, first)


@each_isa
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_scalar_has_the_bits_of_a_lane(isa: Isa, function: str) -> None:
    x = ordinary(function)[:100]
    y = np.zeros_like(x)

    compiled(evaluate_scalars, isa, function=function)(y, x, len(x))

    same_bits(y, value_of(isa, function, x))


@each_isa
@pytest.mark.parametrize("n", SIZES)
def test_tails_are_evaluated_and_nothing_beyond_is_touched(isa: Isa, n: int) -> None:
    x = ordinary("exp")[:n]

    # Operands end at pages that may not be touched.
    same_bits(value_of(isa, "exp", x), arithmetic.exp(x))


@each_isa
def test_fma_rounds_once(isa: Isa) -> None:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((2, 20_003)).astype(np.float32)
    # Nearly cancelling sums show a product that was rounded before the addition.
    c = -(a * b) * np.float32(1) + rng.standard_normal(20_003).astype(np.float32) * np.float32(1e-7)
    y = np.zeros_like(a)

    compiled(multiply_add, isa)(y, a, b, c, len(a))

    same_bits(y, arithmetic.fma(a, b, c))


def test_the_reference_fma_is_exact() -> None:
    from fractions import Fraction

    rng = np.random.default_rng(8)
    a, b, c = (rng.standard_normal(500) * 2.0 ** rng.integers(-20, 20, 500) for _ in range(3))
    a, b, c = (x.astype(np.float32) for x in (a, b, c))
    for x, y, z, actual in zip(a, b, c, arithmetic.fma(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        neighbours = np.nextafter(actual, np.float32([-np.inf, np.inf]))
        distance = abs(exact - Fraction(float(actual)))

        assert all(distance <= abs(exact - Fraction(float(n))) for n in neighbours)


@each_isa
def test_bf16_rounds_to_nearest_even_and_widens_exactly(isa: Isa) -> None:
    random = np.random.default_rng(9).integers(0, 2**32, 5_003, dtype=np.uint32)
    halfway = (np.arange(64, dtype=np.uint32) << 16) + 0x3F808000
    x = np.concatenate([random, halfway, [0x7F800000, 0xFF800000, 0x7F7FFFFF]])
    x = x.astype(np.uint32).view(np.float32)
    y, wide = guarded(np.zeros(len(x), np.uint16)), guarded(np.zeros_like(x))

    compiled(narrow, isa)(y, wide, guarded(x), len(x))

    expected = to_bf16(x)
    same_bits(y, expected)
    same_bits(wide, from_bf16(expected))


@each_isa
@pytest.mark.parametrize("n", SIZES)
def test_reductions_fold_sixteen_strided_lanes(isa: Isa, n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = np.zeros(3, np.float32)
    largest = max(x.max(), 0) if n % 16 else x.max()  # masked lanes load 0

    compiled(reduce, isa)(y, guarded(x), n)

    expected = [arithmetic.tree_sum(x), arithmetic.tree_sum_of_squares(x), largest]
    same_bits(y, np.array(expected, np.float32))


def test_the_tree_is_the_one_written_down() -> None:
    # Lane 0 sums 1 and 2^-24 first, which is 1; the fold pairs lane 0 with 8, then 4, 2, 1.
    terms = np.zeros(32, np.float32)
    terms[[0, 16]] = 1, 2.0**-24
    terms[8] = 2.0**-24

    assert arithmetic.tree_sum(terms) == 1
    terms[[0, 16, 8, 4]] = 2.0**-24, 2.0**-24, 0, 1
    assert arithmetic.tree_sum(terms) == 1 + 2.0**-23


@pytest.mark.parametrize("function", FUNCTIONS)
def test_neon_code_is_emitted(function: str) -> None:
    code = evaluate.specialise(function=function)

    assert "fmla" in code.show("asm", NEON)
