"""Rows that are kept, in the order asked for."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import Isa
from jit_kernels.kernels.gather_rows import gather_rows
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import SIZES, compiled, each_isa, run, same_bits


def gathered(isa: Isa, x: np.ndarray, chosen: np.ndarray, num_workers: int) -> np.ndarray:
    num_rows, n = len(chosen), x.shape[1]
    out = guarded(np.full((num_rows, n), -1, np.float32))
    rows = guarded(np.array([num_rows]))
    operands = (rows, guarded(x), n, guarded(chosen), n, out, n)
    run(compiled(gather_rows, isa), operands, num_workers)
    return out


@each_isa
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("num_workers", [1, 2, 7])
def test_rows_come_in_the_order_asked_for(isa: Isa, n: int, num_workers: int) -> None:
    x = np.random.default_rng(n).standard_normal((9, n)).astype(np.float32)
    x[5, 0] = np.nan
    chosen = np.array([8, 0, 0, 5, 3], np.int32)

    same_bits(gathered(isa, x, chosen, num_workers), x[chosen])


@each_isa
def test_no_rows_write_nothing(isa: Isa) -> None:
    x = np.ones((3, 20), np.float32)
    out = guarded(np.full((1, 20), -1, np.float32))
    operands = (np.array([0]), x, 20, np.array([2], np.int32), 20, out, 20)

    run(compiled(gather_rows, isa), operands, num_workers=2)

    assert (out == -1).all()
