"""InstantQuant: q = clip(rint((w - minimum) / scale), 0, 2^bits - 1), by groups of K, into panels.

Two kernels, between which a caller makes scale and minimum, as they are stored, from the groups'
extremes. Weights are read as checkpoints hold them: [N, K] in float32, bfloat16 or float16.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from jit_kernels.dsl import (
    INFINITY_BITS,
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    Variable,
    VectorIndex,
    absolute_bits,
    bf16_to_f32,
    broadcast,
    constant,
    fold_max,
    fold_min,
    half_to_f32,
    if_else,
    loop,
    maximum,
    minimum,
    round_to_int,
    select,
    vectorized,
    when,
)
from jit_kernels.kernel import kernel, worker
from jit_kernels.panels import PANEL_WIDTH, U4_ORDER
from jit_kernels.types import F32, I32, I64, U8, U16, U32

__all__ = ["SOURCES", "group_codes", "group_extremes"]

SOURCES: Final = ("f32", "bf16", "f16")
"""What weights may be read as."""

_INFINITY: Final = float("inf")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Weights [N, K] in the type called `source`."""

    memory: Array[U8]
    k: Value[I64]
    source: str

    def values(self, row: Value[I64], at: VectorIndex) -> Value[F32]:
        """Sixteen weights of a row, widened exactly; 0 where there are none."""
        place = VectorIndex(row * self.k + at.base, at.mask)
        if self.source == "f32":
            return self.memory.view(F32)[place]
        bits = self.memory.view(U16)[place]
        return bf16_to_f32(bits) if self.source == "bf16" else half_to_f32(bits)


@kernel
def group_extremes(
    num_rows: Value[I64],
    weights: Array[U8],
    k: Value[I64],
    group_length: Value[I64],
    low: Array[F32],
    high: Array[F32],
    *,
    source: str,
) -> None:
    """Write the least and the largest weight of every group, [N, G] each.

    Both are NaN where a weight of the group is not finite; a zero is +0.
    """
    rows = _Rows(weights, k, source)
    num_groups = (k + group_length - 1) // group_length
    first, last = worker().share(num_rows)
    for row in loop(first, last):
        for group in loop(num_groups):
            start = group * group_length
            least = Variable(constant(_INFINITY, F32, VECTOR_LANES))
            largest = Variable(constant(-_INFINITY, F32, VECTOR_LANES))
            bits = RunningMax(I32, 0)
            for at in vectorized(minimum(k - start, group_length)):
                value = rows.values(row, VectorIndex(start + at.base, at.mask))
                bits.update(absolute_bits(value))
                for extreme, choose, other in (
                    (least, minimum, _INFINITY), (largest, maximum, -_INFINITY),
                ):  # fmt: skip
                    seen = value if at.mask is None else select(at.mask, value, other)
                    extreme.set(choose(seen, extreme.get()))
            finite = bits.value() < INFINITY_BITS
            place = row * num_groups + group
            for out, extreme in ((low, fold_min(least.get())), (high, fold_max(largest.get()))):
                out[place] = select(finite, extreme + 0.0, float("nan"))


@kernel
def group_codes(
    num_rows: Value[I64],
    weights: Array[U8],
    k: Value[I64],
    group_length: Value[I64],
    scale: Array[F32],
    minima: Array[F32],
    panels: Array[U32],
    *,
    source: str,
    bits: int,
) -> None:
    """Write the codes of weights [N, K] as panels; `scale` and `minima` are [N, G].

    The last panel's missing columns and the last word's missing weights are 0.
    """
    rows, per_word = _Rows(weights, k, source), 32 // bits
    num_words = (k + (per_word - 1)) // per_word
    num_groups = (k + group_length - 1) // group_length
    num_panels = (num_rows + (PANEL_WIDTH - 1)) // PANEL_WIDTH
    first, last = worker().share(num_panels)
    for panel in loop(first, last):
        words = panels + panel * num_words * PANEL_WIDTH
        for column in loop(PANEL_WIDTH):
            row, own = panel * PANEL_WIDTH + column, words + column
            for exists in if_else(row < num_rows):
                if not exists:
                    for word in loop(num_words):
                        own[word * PANEL_WIDTH] = 0
                    continue
                for group in loop(num_groups):
                    start, place = group * group_length, row * num_groups + group
                    grid = _Grid(scale[place], minima[place], bits)
                    for at in vectorized(minimum(k - start, group_length)):
                        values = rows.values(row, VectorIndex(start + at.base, at.mask))
                        codes = grid.codes(values)
                        if at.mask is not None:
                            codes = select(at.mask, codes, 0)
                        end = None if at.mask is None else num_words
                        _store(own, (start + at.base) // per_word, codes, bits, end)


@dataclass(frozen=True, slots=True)
class _Grid:
    """The values that the codes of one group can stand for."""

    scale: Value[F32]
    minimum: Value[F32]
    bits: int

    def codes(self, values: Value[F32]) -> Value[I32]:
        """The nearest code of each value; where the scale is 0, all values are the minimum."""
        divisor = broadcast(select(self.scale.equals(0.0), 1.0, self.scale))
        steps = (values - broadcast(self.minimum)) / divisor
        most = float((1 << self.bits) - 1)
        return round_to_int(minimum(maximum(steps, 0.0), most))


def _store(
    words: Array[U32], first: Value[I64], codes: Value[I32], bits: int, end: Value[I64] | None
) -> None:
    """Put sixteen codes of one column into its words, `PANEL_WIDTH` apart, those before `end`."""
    packed: Value[Any] = codes.to(U8)
    if bits == 4:
        order = [octet + k for octet in (0, 8) for k in U4_ORDER]
        packed = packed.shuffle(order[0::2]) | packed.shuffle(order[1::2]) << 4
    vector = packed.bits_as(U32)
    for lane in range(vector.lanes):
        word = first + lane
        with nullcontext() if end is None else when(word < end):
            words[word * PANEL_WIDTH] = vector.lane(lane)
