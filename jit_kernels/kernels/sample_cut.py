"""Top-k and top-p: zero the weights after the shortest beginning, by logit, that measures a goal.

Tokens are ordered by logit, largest first, equal ones by id, lowest first; a measure is a weight
per token, one for top-k, the probability for top-p. The boundary is found by bisection of sums,
never by sorting. Knows neither temperature nor random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jit_kernels.dsl import (
    INFINITY_BITS,
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    Variable,
    VectorIndex,
    absolute_bits,
    constant,
    if_else,
    index,
    lane_indices,
    loop,
    running_sum,
    select,
    vectorized,
    when,
    while_loop,
)
from jit_kernels.types import BOOL, F32, I32, I64, U16

__all__ = ["Cut", "Logits", "Survey", "candidate_words", "within"]

Weight = Callable[[VectorIndex], Value[F32]]
Condition = Callable[[VectorIndex], Value[BOOL]]

# Halvings of the logits' range over the whole vocabulary: leaves 1/256 of it, some hundred tokens.
_COARSE_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look at a row tells; `smallest` is the smallest above -inf."""

    smallest: Value[F32]
    largest: Value[F32]
    finite: Value[BOOL]


@dataclass(frozen=True, slots=True)
class Logits:
    """`count` logits in order of their ids."""

    values: Array[F32]
    count: Value[I64]

    def survey(self) -> Survey:
        """The smallest and largest, and whether all are finite."""
        infinity = float("inf")
        largest, negated = RunningMax(F32, -infinity), RunningMax(F32, -infinity)
        bits = RunningMax(I32, 0)
        for i in vectorized(self.count):
            largest.update(within(i, self.values[i], -infinity))
            negated.update(within(i, -self.values[i], -infinity))
            bits.update(absolute_bits(self.values[i]))
        return Survey(-negated.value(), largest.value(), bits.value() < INFINITY_BITS)

    def first_of(self, logit: Value[F32]) -> Value[I32]:
        """The lowest id with this logit."""
        never = -(2**31)
        nearest = RunningMax(I32, never)
        for i in vectorized(self.count):
            found = within(i, self.values[i], float("nan")).equals(logit)
            nearest.update(select(found, -_ids(i), never))
        return -nearest.value()

    def total(self, weight: Weight, where: Condition | None = None) -> Value[F32]:
        """Sum of the weights that satisfy a condition, by the fixed tree."""
        total = running_sum()
        for i in vectorized(self.count):
            kept = weight(i) if where is None else select(where(i), weight(i), 0.0)
            total += within(i, kept, 0.0)
        return total.value()


def candidate_words(vocab: int) -> int:
    """32-bit words of scratch memory that a cut needs."""
    return 3 * (vocab + VECTOR_LANES)


class Cut:
    """One row's logits with the weights to cut.

    Every sum here has one term per token, 0 for those left out, so it cannot shrink as tokens are
    let in: bisection finds the boundary exactly.
    """

    def __init__(
        self, logits: Logits, survey: Survey, weights: Array[F32], scratch: Array[F32]
    ) -> None:
        self._logits = logits
        self._survey = survey
        self._weights = weights
        stride = logits.count + VECTOR_LANES
        self._near = scratch
        self._near_measure = scratch + stride
        self._near_ids = (scratch + stride * 2).view(I32)

    def to_count(self, count: Value[I64]) -> None:
        """Keep the first `count`, which must be less than all above -inf."""
        ones = constant(1.0, F32, VECTOR_LANES)
        self._apply(lambda i: ones, count.to(F32))

    def to_weight(self, goal: Value[F32]) -> None:
        """Keep the shortest beginning that weighs `goal`, above 0 and at most all weights."""
        self._apply(lambda i: self._weights[i], goal)

    def _apply(self, measure: Weight, goal: Value[F32]) -> None:
        low, high, above = self._bracket(measure, goal)
        near = Logits(self._near, self._collect(measure, low, high))

        def measured(where: Condition) -> Value[F32]:
            return above + near.total(lambda i: self._near_measure[i], where)

        def reaches(key: Value[I64]) -> Value[BOOL]:
            return measured(_at_least(near, _number(key))) >= goal

        threshold = _number(_bisect(_key(low), _key(high), reaches))

        def falls_short(last: Value[I64]) -> Value[BOOL]:
            return measured(_beginning(near, threshold, last.to(I32))) < goal

        last = Variable(self._logits.count.to(I32))
        ones = constant(1.0, F32, VECTOR_LANES)
        ties = near.total(lambda i: ones, lambda i: near.values[i].equals(threshold))
        with when(ties > 1.0):
            last.set(self._near_ids[_bisect(index(-1), near.count - 1, falls_short) + 1])
        kept = _beginning(self._logits, threshold, last.get())
        for i in vectorized(self._logits.count):
            self._weights[i] = select(kept(i), self._weights[i], 0.0)

    def _bracket(
        self, measure: Weight, goal: Value[F32]
    ) -> tuple[Value[F32], Value[F32], Value[F32]]:
        """Logits low < high: those from `low` reach the goal, from `high` only the third result."""
        low = Variable(self._survey.smallest)
        # + 0.0 makes -0 +0, which compares equal: the number after -0 would not be above it.
        high = Variable(_number(_key(self._survey.largest + 0.0) + 1))
        above = Variable(constant(0.0, F32))
        for _ in loop(_COARSE_ROUNDS):
            middle = low.get() * 0.5 + high.get() * 0.5
            measured = self._logits.total(measure, _at_least(self._logits, middle))
            for reaches in if_else(measured >= goal):
                (low if reaches else high).set(middle)
                if not reaches:
                    above.set(measured)
        return low.get(), high.get(), above.get()

    def _collect(self, measure: Weight, low: Value[F32], high: Value[F32]) -> Value[I64]:
        """Copy the tokens with low <= logit < high; return how many there are."""
        count = Variable(index(0))
        for i in vectorized(self._logits.count):
            values, measures, numbers = self._logits.values[i], measure(i), _ids(i)
            inside = (values >= low) & (values < high)
            if i.mask is not None:
                inside = inside & i.mask
            with when(inside.bits_as(U16).differs(0)):
                for lane in range(VECTOR_LANES):
                    # Written always, counted where it belongs: no branch.
                    self._near[count.get()] = values.lane(lane)
                    self._near_measure[count.get()] = measures.lane(lane)
                    self._near_ids[count.get()] = numbers.lane(lane)
                    count.set(count.get() + inside.lane(lane).to(I64))
        return count.get()


def within(i: VectorIndex, value: Value[F32], outside: float) -> Value[F32]:
    """The values at `i`, but `outside` beyond the last id."""
    return value if i.mask is None else select(i.mask, value, outside)


def _ids(i: VectorIndex) -> Value[I32]:
    """The sixteen ids at `i`."""
    return lane_indices(I32) + i.base.to(I32)


def _at_least(logits: Logits, threshold: Value[F32]) -> Condition:
    return lambda i: logits.values[i] >= threshold


def _beginning(logits: Logits, threshold: Value[F32], last: Value[I32]) -> Condition:
    """Tokens above the threshold, and those at it up to position `last`."""
    values = logits.values
    return lambda i: (values[i] > threshold) | (values[i].equals(threshold) & (_ids(i) <= last))


def _bisect(
    low: Value[I64], high: Value[I64], holds: Callable[[Value[I64]], Value[BOOL]]
) -> Value[I64]:
    """The largest number that `holds`, as `low` does and `high` does not."""
    lower, upper = Variable(low), Variable(high)
    for _ in while_loop(lambda: upper.get() - lower.get() > 1):
        middle = (lower.get() + upper.get()) >> 1
        for yes in if_else(holds(middle)):
            (lower if yes else upper).set(middle)
    return lower.get()


def _key(number: Value[F32]) -> Value[I64]:
    """An integer that orders like the number, -0 just below +0."""
    bits = number.bits_as(I32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(I64)


def _number(key: Value[I64]) -> Value[F32]:
    """The number of a key."""
    bits = key.to(I32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).bits_as(F32)
