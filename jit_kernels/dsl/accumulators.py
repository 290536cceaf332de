"""Reductions with one fixed tree: sixteen strided lanes, then 16 -> 8 -> 4 -> 2 -> 1.

The order of additions depends on the number of elements alone, so a sum has the same bits on
every instruction set and for every number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from jit_kernels.dsl.intrinsics import fma
from jit_kernels.dsl.values import Value, Variable, constant, maximum, minimum, zeros
from jit_kernels.types import F32, I32, DType

__all__ = [
    "INFINITY_BITS",
    "RunningMax",
    "RunningSum",
    "absolute_bits",
    "fold",
    "fold_max",
    "fold_min",
    "fold_sum",
    "running_sum",
]

D = TypeVar("D", bound=DType)


def fold(vector: Value[D], combine: Callable[[Value[D], Value[D]], Value[D]]) -> Value[D]:
    """Combine lanes pairwise, lower half with upper half, down to one."""
    while vector.lanes > 2:
        vector = combine(*vector.halves())
    return combine(vector.lane(0), vector.lane(1))


def fold_sum(vector: Value[D]) -> Value[D]:
    """Sum of the lanes, in the fixed order."""
    return fold(vector, lambda a, b: a + b)


def fold_max(vector: Value[D]) -> Value[D]:
    """Maximum of the lanes."""
    return fold(vector, maximum)


def fold_min(vector: Value[D]) -> Value[D]:
    """Minimum of the lanes."""
    return fold(vector, minimum)


class RunningSum:
    """A float32 sum over a vectorised loop: `total += x[i]`, `total.add_product(a, b)`."""

    def __init__(self) -> None:
        self._lanes = Variable(zeros(F32))

    def __iadd__(self, term: Value[F32]) -> RunningSum:
        self._lanes.set(self._lanes.get() + term)
        return self

    def add_product(self, left: Value[F32], right: Value[F32]) -> None:
        """Add left * right, rounded once."""
        self._lanes.set(fma(left, right, self._lanes.get()))

    def value(self) -> Value[F32]:
        """The total."""
        return fold_sum(self._lanes.get())


class RunningMax(Generic[D]):
    """A maximum over a vectorised loop, beginning at `floor`."""

    def __init__(self, dtype: type[D], floor: float) -> None:
        self._lanes = Variable(constant(floor, dtype, 16))

    def update(self, candidates: Value[D]) -> None:
        """Take in sixteen candidates."""
        self._lanes.set(maximum(candidates, self._lanes.get()))

    def value(self) -> Value[D]:
        """The largest seen."""
        return fold_max(self._lanes.get())


def running_sum() -> RunningSum:
    """A fresh float32 sum."""
    return RunningSum()


INFINITY_BITS: Final = 0x7F800000
"""`absolute_bits` of infinity: what is finite has less."""


def absolute_bits(vector: Value[F32]) -> Value[I32]:
    """|x| as an integer that orders like |x|, with infinity and NaN above every number."""
    return vector.bits_as(I32) & 0x7FFFFFFF
