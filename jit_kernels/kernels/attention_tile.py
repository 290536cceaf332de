"""What attention works in: a tile of queries in scratch, blocks of it in registers, what they see.

Knows nothing of how scores and sums of values are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    Variable,
    broadcast,
    fma,
    loop,
    maximum,
    select,
    zeros,
)
from jit_kernels.kernels.attention_items import SEGMENT_SIZE
from jit_kernels.kernels.attention_scores import Span
from jit_kernels.types import BOOL, F32, I64, U32, DType

__all__ = ["Ask", "Block", "Seen", "Sums", "Tile"]

_MINUS_INFINITY = float("-inf")
D = TypeVar("D", bound=DType)
Sums = Sequence[Sequence[Variable[F32]]]
Ask = Callable[[Value[I64]], None]


@dataclass(frozen=True, slots=True)
class Tile:
    """A unit's scratch: queries [q][D], scores [q][128], outputs [q][D], and scalars a query.

    `pairs`, `turned` [q][D] and `added` [q][128] are what keys without their bias need.
    Where the cache holds codes, `queries` and `scores` become codes, and `unpacked` has words of a
    page's keys or of a segment's values: see `attention_codes`. Until states are merged,
    `weight_scales` are the largest weights, and `old_weight` tells who sees a key (1) or none (0).
    `highest` and `total` are the running m and l, and `new_weight` and `new_total` those of the
    segment at work; `old_weight` and `new_weight` then say how it merges into the running output.
    """

    head_dim: int
    queries: Array[F32]
    scores: Array[F32]
    outputs: Array[F32]
    highest: Array[F32]
    total: Array[F32]
    old_weight: Array[F32]
    new_weight: Array[F32]
    pairs: Array[F32]
    turned: Array[F32]
    added: Array[F32]
    query_scales: Array[F32]
    weight_scales: Array[F32]
    weight_factors: Array[F32]
    new_total: Array[F32]
    unpacked: Array[U32]

    @staticmethod
    def floats(capacity: int, head_dim: int) -> int:
        """float32 that a tile of `capacity` queries takes."""
        return capacity * (4 * head_dim + 2 * SEGMENT_SIZE + 8) + SEGMENT_SIZE // 2 * head_dim

    @staticmethod
    def at(scratch: Array[F32], capacity: int, head_dim: int) -> Tile:
        """A tile that begins at `scratch`."""
        parts = [scratch]
        sizes = (head_dim, SEGMENT_SIZE, head_dim, 1, 1, 1, 1, head_dim, head_dim, SEGMENT_SIZE)
        for size in (*sizes, 1, 1, 1, 1):
            parts.append(parts[-1] + capacity * size)
        unpacked = parts.pop().view(U32)
        return Tile(head_dim, *parts, unpacked=unpacked)

    def clear(self, num_queries: Value[I64]) -> None:
        """Set the running state to (-inf, 0, 0)."""
        for query in loop(num_queries):
            for column in range(0, self.head_dim, VECTOR_LANES):
                self.outputs[query * self.head_dim + column] = zeros(F32)
            self.highest[query] = _MINUS_INFINITY
            self.total[query] = 0.0

    def merge(
        self,
        first: Value[I64],
        column: Value[I64],
        products: Sequence[Sequence[Value[F32]]],
        sees: Sequence[Value[BOOL]] = (),
    ) -> None:
        """Add a segment's products to the outputs of queries from `first` on, of those that see it.

        products: sums of weights times values, vectors from `column` on.
        """
        for row, totals in enumerate(products):
            old, new = self.old_weight[first + row], self.new_weight[first + row]
            for v, total in enumerate(totals):
                at = (first + row) * self.head_dim + column + v * VECTOR_LANES
                before = self.outputs.vector(at)
                after = fma(before, broadcast(old), total * new)
                self.outputs[at] = select(sees[row], after, before) if sees else after


@dataclass(frozen=True, slots=True)
class Block:
    """`size` queries from `first` on, with sums of `wide` vectors each.

    `apart`: vectors of operands meet all queries one after the other, for registers hold just one.
    """

    first: Value[I64]
    size: int
    wide: int
    apart: bool = False

    @property
    def width(self) -> int:
        """Keys or columns at once."""
        return self.wide * VECTOR_LANES

    def factors(self, array: Array[F32]) -> Sequence[Array[F32]]:
        """`array` of factors as each vector of operands is to read it: not kept for the next."""
        others = [array.hidden() if self.apart else array for _ in range(self.wide - 1)]
        return [array, *others]

    def sums(self, dtype: type[D]) -> Sequence[Sequence[Variable[D]]]:
        """Sums in registers, all 0."""
        return [[Variable(zeros(dtype)) for _ in range(self.wide)] for _ in range(self.size)]


@dataclass(frozen=True, slots=True)
class Seen:
    """Which of a segment's keys a block's queries see: each of them, where they differ.

    Keys of `by_all` go to every sum; the others of `by_any` are looked at query by query.
    """

    by_all: Span
    by_any: Span
    by_each: Sequence[Span] = ()

    @staticmethod
    def of(spans: Sequence[Span]) -> Seen:
        """By queries in the order of their positions."""
        first, last = spans[0], spans[-1]
        by_any = Span(first.first, last.end)
        if isinstance(last.first, int):
            return Seen(first, by_any, spans)
        return Seen(Span(last.first, maximum(first.end, last.first)), by_any, spans)
