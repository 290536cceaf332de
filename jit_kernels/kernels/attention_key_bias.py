"""Keys kept without their bias b: q . R_p b = sum over pairs of A cos(p a) + B sin(p a)   (RoPE).

A = q1 b1 + q2 b2 and B = q2 b1 - q1 b2 of a query turn once to a segment's start; the angles from
there to each of its 128 keys are the same for all segments, heads and layers: a table that stays in
the caches. A bias that is the same for every token would fill int8's range and leave nothing of a
key. Knows nothing of pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jit_kernels.dsl import Array, Value, VectorIndex, fma, loop, vectorized
from jit_kernels.kernels.attention_items import SEGMENT_SIZE
from jit_kernels.types import F32, I64

__all__ = ["KeyBias", "segment_angles"]


def segment_angles(cos: NDArray[np.float32], sin: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosines, then sines, [D][128], of a segment's keys, from tables by position [P][D/2].

    Tables may hold a gain: that of position 0. Positions that the tables lack are 0.
    """
    first = np.concatenate([cos[:SEGMENT_SIZE], sin[:SEGMENT_SIZE]], axis=1)
    gain = np.concatenate([cos[0], cos[0]])
    angles = np.zeros((first.shape[1], SEGMENT_SIZE), np.float32)
    angles[:, : len(first)] = (first / gain).T
    return angles


@dataclass(frozen=True, slots=True)
class KeyBias:
    """b of a kv head [D], `cos` and `sin` by position [P][D/2], and `segment_angles`."""

    bias: Array[F32]
    cos: Array[F32]
    sin: Array[F32]
    angles: Array[F32]
    head_dim: int

    def of_head(self, kv_head: Value[I64]) -> KeyBias:
        """The same for another head, where `bias` is that of the first."""
        bias = self.bias + kv_head * self.head_dim
        return KeyBias(bias, self.cos, self.sin, self.angles, self.head_dim)

    def pair(self, queries: Array[F32], products: Array[F32], count: Value[I64] | int) -> None:
        """Write A and B [D] of every query."""
        half = self.head_dim // 2
        for query in loop(count):
            q, out = queries + query * self.head_dim, products + query * self.head_dim
            for d in vectorized(half):
                upper = VectorIndex(d.base + half, d.mask)
                q1, q2, b1, b2 = q[d], q[upper], self.bias[d], self.bias[upper]
                out[d] = fma(q1, b1, q2 * b2)
                out[upper] = fma(q2, b1, -(q1 * b2))

    def turn(
        self,
        products: Array[F32],
        turned: Array[F32],
        count: Value[I64] | int,
        position: Value[I64],
    ) -> None:
        """Write A and B of every query as seen from a segment that begins at `position`."""
        half = self.head_dim // 2
        cos, sin = self.cos + position * half, self.sin + position * half
        for query in loop(count):
            source, out = products + query * self.head_dim, turned + query * self.head_dim
            for d in vectorized(half):
                upper = VectorIndex(d.base + half, d.mask)
                a, b = source[d], source[upper]
                out[d] = fma(a, cos[d], b * sin[d])
                out[upper] = fma(b, cos[d], -(a * sin[d]))
