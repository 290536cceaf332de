"""A token's rank and the likeliest tokens: rank = 1 + |{j: x_j > x_i}|; top k by (logit, id).

Equal logits go to the lowest id first. One pass keeps a sorted list of the best so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    Variable,
    constant,
    index,
    loop,
    maximum,
    minimum,
    running_sum,
    select,
    vectorized,
    when,
    while_loop,
)
from jit_kernels.kernels.sample_cut import Logits, within
from jit_kernels.types import F32, I32, I64, U16

__all__ = ["TOP_LOGITS", "Best", "rank_of"]

TOP_LOGITS: Final = 20
"""Most likeliest tokens of a row."""


def rank_of(x: Logits, logit: Value[F32]) -> Value[I32]:
    """1 + the number of larger logits."""
    larger, ones = running_sum(), constant(1.0, F32, VECTOR_LANES)
    for i in vectorized(x.count):
        value = within(i, x.values[i], float("-inf"))
        larger += select(value > logit, ones, 0.0)
    return larger.value().to(I32) + 1


@dataclass(frozen=True, slots=True)
class Best:
    """Where a row's likeliest are kept: ids and logits, best first."""

    ids: Array[I32]
    logits: Array[F32]

    def fill(self, x: Logits, wanted: Value[I64]) -> None:
        """Find the first `wanted` of x's finite logits, TOP_LOGITS at most; 0 finds none."""
        capacity = minimum(minimum(wanted, TOP_LOGITS), x.count)
        count, floor = Variable(index(0)), Variable(constant(float("-inf"), F32))
        with when(capacity > 0):
            for i in vectorized(x.count):
                better = within(i, x.values[i], float("-inf")) > floor.get()
                with when(better.bits_as(U16).differs(0)):
                    for position in loop(i.base, minimum(i.base + VECTOR_LANES, x.count)):
                        value = x.values[position]
                        with when(value > floor.get()):
                            self._insert(value, position, count, capacity)
                            full = count.get() >= capacity
                            last = self.logits[capacity - 1]
                            floor.set(select(full, last, floor.get()))

    def _insert(
        self, value: Value[F32], token: Value[I64], count: Variable[I64], capacity: Value[I64]
    ) -> None:
        """Put a token in its place; of a full list the last one goes."""
        place = Variable(minimum(count.get(), capacity - 1))
        count.set(minimum(count.get() + 1, capacity))

        def before() -> Value[I64]:
            return maximum(place.get() - 1, 0)

        for _ in while_loop(lambda: (place.get() > 0) & (self.logits[before()] < value)):
            self.logits[place.get()] = self.logits[before()]
            self.ids[place.get()] = self.ids[before()]
            place.set(before())
        self.logits[place.get()] = value
        self.ids[place.get()] = token.to(I32)
