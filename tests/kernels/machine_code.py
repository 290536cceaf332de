"""Kernels compiled for each instruction set of this machine, and run as so many workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from jit_kernels.compiler.jit import compiler_for
from jit_kernels.isa import AVX2, AVX512, BASELINE, Isa, object_cache_directory, runnable
from jit_kernels.kernel import Argument, CompiledKernel, Constant, Kernel

__all__ = [
    "ISAS",
    "SIZES",
    "compiled",
    "each_fast_isa",
    "each_isa",
    "run",
    "same_bits",
]

ISAS = tuple(isa for isa in (BASELINE, AVX2, AVX512) if runnable(isa))
SIZES = (1, 7, 15, 16, 17, 63, 64, 65, 256, 257, 1003)


def _marks(isa: Isa) -> list[pytest.MarkDecorator]:
    """What no machine of today chooses is left to `make test-slow`; so is compiling it."""
    slow = [pytest.mark.slow] if isa is BASELINE and len(ISAS) > 1 else []
    return [pytest.mark.isa(isa.name), *slow]


each_isa = pytest.mark.parametrize(
    "isa", [pytest.param(isa, marks=_marks(isa), id=isa.name) for isa in ISAS]
)
each_fast_isa = pytest.mark.parametrize(
    "isa",
    [
        pytest.param(isa, marks=pytest.mark.isa(isa.name), id=isa.name)
        for isa in ISAS
        if isa is not BASELINE
    ],
)
"""For kernels that take long to compile: without the oldest instruction set."""


def compiled(kernel: Kernel, isa: Isa, **constants: Constant) -> CompiledKernel:
    """Machine code of `kernel`, from the object cache where it is there."""
    compiler = compiler_for(isa, object_cache_directory())
    return kernel.specialise(**constants).compile(compiler)


def run(code: CompiledKernel, operands: Sequence[Argument], num_workers: int = 1) -> None:
    """Run every worker's share, one after the other, the last worker first."""
    for worker in reversed(range(num_workers)):
        code(*operands, worker=worker, num_workers=num_workers)


def same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Fail where two arrays differ in any bit; a NaN equals any NaN."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    bits = f"u{actual.itemsize}"
    nan = np.isnan(actual) & np.isnan(expected)
    differing = (actual.view(bits) != expected.view(bits)) & ~nan

    assert np.argwhere(differing).tolist() == []
