"""The exponential of what is not above 0 has the bits of the exponential of anything."""

from __future__ import annotations

import numpy as np

from jit_kernels.dsl import Array, Value, exp_nonpositive, vectorized
from jit_kernels.isa import Isa
from jit_kernels.kernel import kernel
from jit_kernels.reference import arithmetic
from jit_kernels.types import F32, I64
from tests.kernels.machine_code import compiled, each_isa, run, same_bits


@kernel
def exponentials(x: Array[F32], n: Value[I64], out: Array[F32]) -> None:
    """out = e**x."""
    for i in vectorized(n):
        out[i] = exp_nonpositive(x[i])


@each_isa
def test_the_bits_are_those_of_exp(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    limits = np.float32([-87.33654, -126.5 * np.log(2)])  # normal down to one, 0 below the other
    edges = [np.nextafter(limits, np.float32(to)) for to in (-np.inf, 0)]
    halves = (np.arange(-126, 1) - 0.5) * np.log(2)  # where the power of two changes
    around = [*limits, *np.ravel(edges), *halves]
    special = [0.0, -0.0, -np.inf, np.nan, -1e-45, -1e-30, -1e30, *around]
    x = np.concatenate([np.float32(special), np.float32(-90 * rng.random(5003))])
    out = np.full(len(x), -1, np.float32)

    run(compiled(exponentials, isa), (x, len(x), out))

    same_bits(out, arithmetic.exp(x))
    assert out[0] == out[1] == 1
    assert out[2] == 0
    assert out[x < -87.7].tolist() == [0] * np.count_nonzero(x < -87.7)
    assert np.isnan(out[3])
