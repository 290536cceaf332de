"""Tiles of a matrix product: rows x 16 columns of sums over packed 32-bit words of weights.

A *word* holds 1, 2, 4 or 8 weights of one column along K (see `panels`); 16 words side by side are
one vector. A *step* is what one 32-bit word of an activation row meets: a float32, a pair of int16
or a quad of int8. Knows how words become sums; knows nothing of scales, work sharing or where
results go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    Variable,
    VectorIndex,
    constant,
    dot_pairs,
    dot_pairs_narrow,
    dot_quads,
    fma,
    index,
    loop,
    minimum,
    zeros,
)
from jit_kernels.dsl.trace import current
from jit_kernels.isa import Isa
from jit_kernels.types import F32, I8, I16, I32, I64, U8, U16, U32

__all__ = [
    "BF16_PAIRS",
    "F32_WORDS",
    "PREFETCH_BYTES",
    "U4_BY_I8",
    "U4_BY_I16",
    "U8_BY_I7",
    "U8_BY_I16",
    "ActivationRows",
    "Arithmetic",
    "Prefetch",
    "Tile",
    "accumulate",
    "integer_dots",
    "row_tile",
    "rows_in_registers",
    "rows_per_pass",
    "unrolled",
]


PREFETCH_BYTES = 6144  # what memory delivers in its own latency, and some more
_CHAINS = 4


def row_tile(isa: Isa) -> int:
    """Rows of the blocked form's tile: its sums take at most three quarters of the registers.

    Eight at most: more rows gain nothing, and the last strip computes its missing ones, too.
    """
    return min(8, isa.num_registers * 3 // 4 // (VECTOR_LANES // isa.float_lanes))


def rows_per_pass(isa: Isa) -> int:
    """Rows that share one decoding of the weights in the GEMV forms."""
    return 4 if isa.num_registers == 16 else 8


def rows_in_registers(isa: Isa) -> int:
    """Rows whose sums in the GEMV forms fit the registers beside their dots."""
    return 2 if isa.num_registers == 16 else 4


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How 16 packed words become `steps` operands, and how an operand meets an activation.

    `elements` of K meet in one step. A single row asks `alone_ahead` bytes ahead: see `Prefetch`.
    Products of two elements, over `narrow_steps` steps, add up to no more than int16 holds.
    """

    steps: int
    decode: Callable[[Value[U32]], Sequence[Value[Any]]]
    multiply_add: Callable[[Value[U32], Value[Any], Value[Any]], Value[Any]]
    elements: int = 2
    alone_ahead: int = 0
    narrow_steps: int = 0

    @property
    def unpacked(self) -> Arithmetic:
        """The same on words that were decoded before."""
        return replace(self, steps=1, decode=_as_it_is)


def _fma_step(activation: Value[U32], weight: Value[F32], total: Value[F32]) -> Value[F32]:
    return fma(activation.bits_as(F32), weight, total)


def _dot_step(activation: Value[U32], weight: Value[U32], total: Value[Any]) -> Value[Any]:
    return dot_pairs(total, weight.bits_as(I16), activation.bits_as(I16))


def _quad_step(activation: Value[U32], weight: Value[U32], total: Value[Any]) -> Value[Any]:
    return dot_quads(total, weight.bits_as(U8), activation.bits_as(I8))


def _as_it_is(words: Value[U32]) -> Sequence[Value[U32]]:
    return [words]


def _even_and_odd_bytes(words: Value[U32]) -> tuple[Value[U32], Value[U32]]:
    lanes = words.bits_as(U16)
    return (lanes & 0xFF).bits_as(U32), (lanes >> 8).bits_as(U32)


def _nibbles_of_halves(words: Value[U32]) -> list[Value[U32]]:
    lanes = words.bits_as(U16)
    low = [(lanes if shift == 0 else lanes >> shift) & 0xF for shift in (0, 4, 8)]
    return [nibble.bits_as(U32) for nibble in (*low, lanes >> 12)]


def _low_and_high_nibbles(words: Value[U32]) -> tuple[Value[U32], Value[U32]]:
    return words & 0x0F0F0F0F, (words >> 4) & 0x0F0F0F0F


def _low_and_high_halves(words: Value[U32]) -> tuple[Value[F32], Value[F32]]:
    return (words << 16).bits_as(F32), (words & 0xFFFF0000).bits_as(F32)


F32_WORDS = Arithmetic(1, lambda words: [words.bits_as(F32)], _fma_step, 1, alone_ahead=2048)
BF16_PAIRS = Arithmetic(2, _low_and_high_halves, _fma_step, 1, alone_ahead=3072)
U8_BY_I16 = Arithmetic(2, _even_and_odd_bytes, _dot_step)
U4_BY_I16 = Arithmetic(4, _nibbles_of_halves, _dot_step, alone_ahead=7168)
U8_BY_I7 = Arithmetic(1, _as_it_is, _quad_step, 4, alone_ahead=2048)
# 8 steps x 2 products of 15 x 127.
U4_BY_I8 = Arithmetic(2, _low_and_high_nibbles, _quad_step, 4, alone_ahead=7168, narrow_steps=8)


@dataclass(frozen=True, slots=True)
class ActivationRows:
    """Some rows of prepared activations: row r's word s is `starts[r][s * word_step]`."""

    starts: Sequence[Array[U32]]
    word_step: int

    @staticmethod
    def strip(words: Array[U32], tile: int) -> ActivationRows:
        """The rows of one strip, [step][tile]."""
        return ActivationRows([words + row for row in range(tile)], tile)

    def __len__(self) -> int:
        return len(self.starts)

    def after(self, steps: Value[I64]) -> ActivationRows:
        """The same rows from `steps` on."""
        skipped = steps * self.word_step
        return ActivationRows([start + skipped for start in self.starts], self.word_step)

    def broadcast(self, row: int, step: Value[I64]) -> Value[U32]:
        """One word of one row in every lane."""
        return self.starts[row].broadcast(step * self.word_step)


class Tile:
    """Sums of 16 columns for each of `rows` rows, in memory or, for few rows, in registers."""

    def __init__(
        self, rows: int, memory: Array[F32] | None, registers: list[Variable[F32]]
    ) -> None:
        self.rows = rows
        self._memory = memory
        self._registers = registers

    @staticmethod
    def in_memory(memory: Array[F32], rows: int) -> Tile:
        """Sums that lie in `memory`."""
        return Tile(rows, memory, [])

    @staticmethod
    def in_registers(rows: int) -> Tile:
        """Sums that LLVM keeps where it likes."""
        return Tile(rows, None, [Variable(zeros(F32)) for _ in range(rows)])

    def hidden(self) -> Tile:
        """The same sums, kept in memory if they are there: see `Array.hidden`."""
        memory = None if self._memory is None else self._memory.hidden()
        return Tile(self.rows, memory, self._registers)

    def clear(self) -> None:
        """Set every sum to 0."""
        for row in range(self.rows):
            self[row] = zeros(F32)

    def __getitem__(self, row: int) -> Value[F32]:
        if self._memory is None:
            return self._registers[row].get()
        return self._memory.vector(row * VECTOR_LANES)

    def __setitem__(self, row: int, sums: Value[F32]) -> None:
        if self._memory is None:
            self._registers[row].set(sums)
        else:
            self._memory[VectorIndex(index(row * VECTOR_LANES))] = sums


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Ask for the words `bytes_ahead` of those at work, into the first- or the second-level cache.

    One row waits for memory. The processor's own prefetcher is ahead of it, and how far it pays to
    ask beyond that depends on the work a word takes (`Arithmetic.alone_ahead`): a quarter faster
    for u4, a twentieth for most, nothing for u8, which asking held up. Several rows wait for the
    units as well and say by their schedule. With 16 registers a word takes them so long that what
    was asked for is met in the first-level cache (4 rows: a third faster).
    """

    bytes_ahead: Value[I64] | int
    into_first_level: bool

    @staticmethod
    def for_one(arithmetic: Arithmetic) -> Prefetch | None:
        """What a single row asks for, None where it asks for nothing."""
        return Prefetch(arithmetic.alone_ahead, False) if arithmetic.alone_ahead else None

    @staticmethod
    def for_several(bytes_ahead: int) -> Prefetch | None:
        """What more rows ask for, None where it is nothing."""
        return Prefetch(bytes_ahead, current().isa.num_registers == 16) if bytes_ahead else None

    def ask(self, words: Array[U32], word: Value[I64]) -> None:
        """The prefetch that goes with one vector of `words`."""
        level = 3 if self.into_first_level else 2
        (words + word * VECTOR_LANES).prefetch(self.bytes_ahead, locality=level)


def unrolled(count: Value[I64], factor: int) -> Iterator[Value[I64]]:
    """0..count-1; the body is traced `factor` times for the main loop, once for what is left."""
    if factor == 1:
        yield from loop(count)
        return
    whole = count // factor * factor
    for base in loop(0, whole, factor):
        for offset in range(factor):
            yield base + offset
    yield from loop(whole, count)


def accumulate(
    arithmetic: Arithmetic,
    panels: Sequence[Array[U32]],
    num_words: Value[I64],
    rows: ActivationRows,
    sums: Sequence[Sequence[Variable[Any]]],
    *,
    unroll: int,
    prefetch: Prefetch | None = None,
) -> None:
    """sums[p][r] += activations[r] . panels[p] over `num_words` vectors of words, in order."""
    for word in unrolled(num_words, unroll):
        for words, totals in zip(panels, sums, strict=True):
            if prefetch is not None:
                prefetch.ask(words, word)
            weights = arithmetic.decode(words.vector(word * VECTOR_LANES))
            # Rows outside steps: LLVM reorders the sums of one row and would keep products alive.
            for row, total in enumerate(totals):
                for step, weight in enumerate(weights):
                    activation = rows.broadcast(row, word * arithmetic.steps + step)
                    total.set(arithmetic.multiply_add(activation, weight, total.get()))


def integer_dots(
    arithmetic: Arithmetic,
    words: Array[U32],
    num_words: Value[I64],
    rows: ActivationRows,
    unroll: int,
    prefetch: Prefetch | None = None,
) -> list[Value[I32]]:
    """activations[r] . weights over `num_words` vectors of words; `unroll` divides `num_words`.

    The sums are exact whatever their order.
    """
    meeting = _Meeting(arithmetic, words, rows, prefetch)
    if arithmetic.narrow_steps and current().isa.sums_quads_in_int16:
        return _dots_by_int16(meeting, num_words, unroll)
    # Few rows, which make too few chains of additions to keep the units busy, have several each.
    ways = _CHAINS // min(len(rows), _CHAINS) if unroll > 1 else 1
    chains = [[Variable(zeros(I32)) for _ in range(ways)] for _ in range(len(rows))]
    for base in loop(0, num_words, unroll):
        for offset in range(unroll):
            for row, step, weight, activation in meeting.at(base + offset):
                total = chains[row][(offset * arithmetic.steps + step) % ways]
                total.set(arithmetic.multiply_add(activation, weight, total.get()))
    return [reduce(add, (total.get() for total in own)) for own in chains]


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Words of a panel and the rows that they meet."""

    arithmetic: Arithmetic
    words: Array[U32]
    rows: ActivationRows
    prefetch: Prefetch | None

    def at(self, word: Value[I64]) -> Iterator[tuple[int, int, Value[Any], Value[U32]]]:
        """(row, step, weights, activation) of everything that one vector of words meets."""
        if self.prefetch is not None:
            self.prefetch.ask(self.words, word)
        weights = self.arithmetic.decode(self.words.vector(word * VECTOR_LANES))
        for row in range(len(self.rows)):
            for step, weight in enumerate(weights):
                yield row, step, weight, self.rows.broadcast(row, word * len(weights) + step)


def _dots_by_int16(meeting: _Meeting, num_words: Value[I64], unroll: int) -> list[Value[I32]]:
    """`integer_dots` where sums of some steps fit int16: two instructions a step, not three."""
    run = meeting.arithmetic.narrow_steps // meeting.arithmetic.steps
    unroll, lanes = min(unroll, run), 2 * VECTOR_LANES
    totals = [Variable(zeros(I32)) for _ in range(len(meeting.rows))]
    for first in loop(0, num_words, run):
        sums = [Variable(zeros(I16, lanes)) for _ in totals]
        for base in loop(first, minimum(first + run, num_words), unroll):
            for offset in range(unroll):
                for row, _, weight, activation in meeting.at(base + offset):
                    weights, activations = weight.bits_as(U8), activation.bits_as(I8)
                    sums[row].set(dot_pairs_narrow(sums[row].get(), weights, activations))
        for total, narrow in zip(totals, sums, strict=True):
            total.set(dot_pairs(total.get(), narrow.get(), constant(1, I16, lanes)))
    return [total.get() for total in totals]
