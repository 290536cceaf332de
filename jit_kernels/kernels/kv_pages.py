"""Pages of the cache in kernels: elements in their format read as float32, tokens appended.

int8: s = max|x| / 127, q = rint(x / s), a token and head; a head that is not finite has a scale of
NaN. Knows nothing of requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    VectorIndex,
    absolute_bits,
    bf16_to_f32,
    loop,
    round_to_bf16,
    round_to_int,
    select,
    vectorized,
)
from jit_kernels.kv_layout import PAGE_SIZE, block_bytes, elements_bytes
from jit_kernels.types import F32, I8, I32, I64, U8, U16

__all__ = ["HeadPage", "Layout", "Stored"]

_TYPES: dict[str, type[Any]] = {"fp32": F32, "bf16": U16, "int8": I8}
_LINE_BYTES = 64
_TO_L2 = 2  # a prefetch's locality: a segment is too much for the first-level cache
_LARGEST_CODE = 127.0
_INFINITY_BITS = 0x7F800000
_SMALLEST_MAXIMUM_BITS = 0x01000000  # below, 127 / max|x| may overflow: 0 is kept


@dataclass(frozen=True, slots=True)
class Stored:
    """Elements of pages in their format; those of int8 are read unscaled."""

    array: Array[Any]

    def __add__(self, elements: Value[I64] | int) -> Stored:
        return Stored(self.array + elements)

    def vector(self, position: Value[I64] | int) -> Value[F32]:
        """Sixteen consecutive elements."""
        elements = self.array.vector(position)
        if elements.dtype is F32:
            return elements
        return bf16_to_f32(elements) if elements.dtype is U16 else elements.to(I32).to(F32)

    def ask(self, position: Value[I64] | int, num_vectors: int) -> None:
        """Prefetch the lines that hold so many vectors."""
        num_bytes = num_vectors * VECTOR_LANES * self.array.dtype.bits // 8
        lines = self.array + position
        for line in range(0, num_bytes, _LINE_BYTES):
            lines.prefetch(line, _TO_L2)


@dataclass(frozen=True, slots=True)
class Layout:
    """A format and a head size."""

    kv_format: str
    head_dim: int

    @property
    def has_scales(self) -> bool:
        """Whether elements are codes to be scaled."""
        return self.kv_format == "int8"

    @property
    def block_bytes(self) -> int:
        """Bytes of one kv head in a page."""
        return block_bytes(self.kv_format, self.head_dim)

    def block(self, pages: Array[U8], number: Value[I64]) -> HeadPage:
        """The part of `pages` with that number: page * num_kv_heads + kv head."""
        return HeadPage(self, pages + number * self.block_bytes)


@dataclass(frozen=True, slots=True)
class HeadPage:
    """One kv head's part of a page."""

    layout: Layout
    memory: Array[U8]

    @property
    def keys(self) -> Stored:
        """K [D][32]."""
        return Stored(self.memory.view(_TYPES[self.layout.kv_format]))

    @property
    def values(self) -> Stored:
        """V [32][D]."""
        return Stored((self.memory + self._elements).view(_TYPES[self.layout.kv_format]))

    @property
    def key_scales(self) -> Array[F32]:
        """[32], of int8."""
        return (self.memory + 2 * self._elements).view(F32)

    @property
    def value_scales(self) -> Array[F32]:
        """[32], of int8."""
        return self.key_scales + PAGE_SIZE

    @property
    def _elements(self) -> int:
        return elements_bytes(self.layout.kv_format, self.layout.head_dim)

    def append(self, offset: Value[I64], key: Array[F32], value: Array[F32]) -> None:
        """Round a token's key and value [D] to the format, and keep them at `offset` of 32."""
        head_dim = self.layout.head_dim
        keys, values = self.keys.array + offset, self.values.array + offset * head_dim
        if self.layout.has_scales:
            self.key_scales[offset] = _quantise(key, head_dim, keys, PAGE_SIZE)
            self.value_scales[offset] = _quantise(value, head_dim, values, 1)
            return
        for d in loop(head_dim):
            keys[d * PAGE_SIZE] = self._rounded(key[d])
        for d in vectorized(head_dim):
            values[d] = self._rounded(value[d])

    def _rounded(self, x: Value[F32]) -> Value[Any]:
        return round_to_bf16(x) if self.layout.kv_format == "bf16" else x


def _quantise(x: Array[F32], count: int, codes: Array[I8], stride: int) -> Value[F32]:
    """Write the codes of `x`, `stride` apart; return their scale."""
    largest = RunningMax(I32, 0)
    for d in vectorized(count):
        largest.update(absolute_bits(x[d]))
    bits = largest.value()
    finite, large = bits < _INFINITY_BITS, bits >= _SMALLEST_MAXIMUM_BITS
    maximum = bits.bits_as(F32)
    inverse = _LARGEST_CODE / maximum

    def code(element: Value[F32]) -> Value[I8]:
        return select(finite & large, round_to_int(element * inverse), 0).to(I8)

    if stride == 1:
        for d in vectorized(count):
            codes[d] = code(x[d])
    else:
        for base in loop(0, count // VECTOR_LANES * VECTOR_LANES, VECTOR_LANES):
            vector, column = code(x[VectorIndex(base)]), codes + base * stride
            for lane in range(VECTOR_LANES):
                column[lane * stride] = vector.lane(lane)
        for d in loop(count // VECTOR_LANES * VECTOR_LANES, count):
            codes[d * stride] = code(x[d])
    return select(finite, select(large, maximum / _LARGEST_CODE, 0.0), float("nan"))
