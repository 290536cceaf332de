"""Soft-capped rows: the reference's bits, close to float64, and nothing beside the rows."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import Isa
from jit_kernels.kernels.softcap import softcap
from jit_kernels.reference import softcap as reference
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import SIZES, compiled, each_isa, run, same_bits

CAP = 30.0


def values(num_rows: int, n: int) -> np.ndarray:
    return (np.random.default_rng(n).standard_normal((num_rows, n)) * 40).astype(np.float32)


@each_isa
@pytest.mark.parametrize("n", [*SIZES, 2063])
def test_rows_have_the_bits_of_the_reference(isa: Isa, n: int) -> None:
    x = values(3, n)
    capped = guarded(x)

    run(compiled(softcap, isa), (guarded(np.array([3])), capped, n, n, CAP), num_workers=2)

    same_bits(np.array(capped), reference.softcap_bits(x, CAP))


@each_isa
def test_columns_between_the_rows_stay_as_they_are(isa: Isa) -> None:
    x = values(3, 48)
    before = x.copy()

    run(compiled(softcap, isa), (np.array([3]), x, 48, 35, CAP), num_workers=3)

    same_bits(x[:, 35:].copy(), before[:, 35:].copy())
    same_bits(x[:, :35].copy(), reference.softcap_bits(before[:, :35], CAP))


def test_the_reference_is_close_to_float64() -> None:
    x = np.random.default_rng(1).uniform(-200, 200, 20_003).astype(np.float32)
    # tanh errs by 2e-7; the quotient moves it by 2^-24 of an argument at most 1 / cosh² weighs.
    error = np.abs(reference.softcap_bits(x, CAP) - reference.softcap(x, CAP))

    assert error.max() <= CAP * 5e-7


def test_what_is_not_finite_is_seen() -> None:
    capped = reference.softcap_bits(np.float32([np.nan, np.inf, -np.inf]), CAP)

    np.testing.assert_array_equal(capped, np.float32([np.nan, CAP, -CAP]))
