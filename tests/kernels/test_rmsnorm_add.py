"""RMSNorm added to a residual: the reference's bits, in place and by several workers."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import AVX2, Isa
from jit_kernels.kernels.rmsnorm_add import rmsnorm_add
from jit_kernels.reference.rmsnorm import rmsnorm_add_bits
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import SIZES, compiled, each_isa, run, same_bits

EPS = 1e-6


def operands_of(num_rows: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    x, residual = rng.standard_normal((2, num_rows, n)).astype(np.float32)
    return x * np.float32(9), rng.uniform(-2, 2, n).astype(np.float32), residual


@each_isa
@pytest.mark.parametrize("n", SIZES)
def test_rows_have_the_bits_of_the_reference(isa: Isa, n: int) -> None:
    x, weight, residual = operands_of(3, n)
    out = guarded(np.full_like(x, -1))
    operands = (
        guarded(np.array([3])), guarded(x), n, guarded(weight), EPS, n, guarded(residual), n, out, n
    )  # fmt: skip

    run(compiled(rmsnorm_add, isa), operands, num_workers=2)

    same_bits(out, rmsnorm_add_bits(x, weight, EPS, residual))


def test_the_sum_may_take_the_residuals_place() -> None:
    x, weight, residual = operands_of(4, 83)
    expected = rmsnorm_add_bits(x, weight, EPS, residual)

    run(
        compiled(rmsnorm_add, AVX2),
        (np.array([4]), x, 83, weight, EPS, 83, residual, 83, residual, 83),
        num_workers=3,
    )

    same_bits(residual, expected)


@each_isa
def test_a_row_that_is_not_finite_stays_so_and_spoils_no_other(isa: Isa) -> None:
    x, weight, residual = operands_of(3, 100)
    x[1, 42] = np.nan

    run(
        compiled(rmsnorm_add, isa),
        (np.array([3]), x, 100, weight, EPS, 100, residual, 100, residual, 100),
    )

    assert np.isnan(residual[1]).all()
    assert np.isfinite(residual[[0, 2]]).all()
