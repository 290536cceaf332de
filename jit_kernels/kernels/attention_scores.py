"""Which keys a row sees and what the softmax takes: c tanh(s q.k / c) + slope (key - position).

Scale, soft cap, ALiBi and mask apply in this order. Cap: Gemma 2 (Riviere et al. 2024); slopes:
Press et al. 2022; window: Beltagy et al. 2020. Knows nothing of pages and of sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    fma,
    lane_indices,
    maximum,
    minimum,
    select,
    tanh,
)
from jit_kernels.kernels.attention_items import SEGMENT_SIZE
from jit_kernels.kernels.attention_key_bias import KeyBias
from jit_kernels.types import BOOL, F32, I32, I64

__all__ = ["Scoring", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """Keys `first` .. `end` - 1 of a segment; a `first` of the integer 0 is known to be 0."""

    first: Value[I64] | int
    end: Value[I64]

    @property
    def is_filled(self) -> Value[BOOL]:
        """Whether there is any."""
        return self.end > self.first

    def holds(self, key: Value[I64]) -> Value[BOOL]:
        """Whether it has that key."""
        if isinstance(self.first, int):
            return key < self.end
        return (key < self.end) & (key >= self.first)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What becomes of a product q . k; None is what a model does without.

    `slopes` are a head's each; `window` is in keys, a row's own among them.
    """

    scale: Value[F32]
    softcap: Value[F32] | None = None
    slopes: Array[F32] | None = None
    window: Value[I64] | None = None
    key_bias: KeyBias | None = None

    def of_head(self, kv_head: Value[I64], heads_per_kv: int) -> Scoring:
        """The same for one kv head and its queries, where slopes and bias are those of all."""
        slopes, bias = self.slopes, self.key_bias
        return replace(
            self,
            slopes=None if slopes is None else slopes + kv_head * heads_per_kv,
            key_bias=None if bias is None else bias.of_head(kv_head),
        )

    def seen(self, position: Value[I64]) -> Span:
        """What a row sees of a segment.

        `position` counts from the segment's start; it may lie before or beyond it.
        """
        end = minimum(maximum(position + 1, 0), SEGMENT_SIZE)
        if self.window is None:
            return Span(0, end)
        return Span(minimum(maximum(position + 1 - self.window, 0), SEGMENT_SIZE), end)

    def logits(
        self, products: Value[F32], first_key: Value[I64], head: Value[I64], position: Value[I64]
    ) -> Value[F32]:
        """Sixteen products' logits; keys and `position` count from the segment's start."""
        scores = products * self.scale
        if self.softcap is not None:
            scores = tanh(scores / self.softcap) * self.softcap
        if self.slopes is not None:
            distance = lane_indices(I32) + (first_key - position).to(I32)
            scores = fma(self.slopes.broadcast(head), distance.to(F32), scores)
        return scores

    def masked(
        self,
        scores: Value[F32],
        first_key: Value[I64],
        span: Span,
        *,
        last: bool,
        other: float = float("-inf"),
    ) -> Value[F32]:
        """`other` for keys, of sixteen, that are not in `span`; only the `last` reach its end."""
        lanes = lane_indices(I32)
        sees: Value[BOOL] | None = None
        if not isinstance(span.first, int):
            sees = lanes >= (span.first - first_key).to(I32)
        if last:
            ends = lanes < (span.end - first_key).to(I32)
            sees = ends if sees is None else sees & ends
        return scores if sees is None else select(sees, scores, other)

    def vectors(self, span: Span) -> Span:
        """The span filled up to whole vectors."""
        return Span(
            self.first_vector(span), (span.end + (VECTOR_LANES - 1)) // VECTOR_LANES * VECTOR_LANES
        )

    def first_vector(self, span: Span) -> Value[I64] | int:
        """The first of the sixteen keys that hold the span's first."""
        if isinstance(span.first, int):
            return 0
        return span.first // VECTOR_LANES * VECTOR_LANES
