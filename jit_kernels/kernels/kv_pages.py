"""Pages of the cache in kernels: elements read as float32, or words of codes; tokens appended.

int8: s = max|x| / c, code = rint(x / s), a token and head, c = 2047 of a key and 127 of a value; a
head that is not finite has a scale of NaN. Knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jit_kernels.dsl import (
    INFINITY_BITS,
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    VectorIndex,
    absolute_bits,
    bf16_to_f32,
    constant,
    loop,
    round_to_bf16,
    round_to_int,
    select,
    vectorized,
)
from jit_kernels.kv_layout import (
    KEY_GROUP,
    KEY_LOW_BITS,
    LARGEST_KEY_CODE,
    LARGEST_VALUE_CODE,
    PAGE_SIZE,
    block_bytes,
    key_bytes,
    value_bytes,
)
from jit_kernels.types import F32, I8, I16, I32, I64, U8, U16, U32

__all__ = ["HeadPage", "Layout", "Stored", "code_factors", "quantiser"]

_TYPES: dict[str, type[Any]] = {"fp32": F32, "bf16": U16, "int8": I8}
_LINE_BYTES = 64
_TO_L2 = 2  # a prefetch's locality: a segment is too much for the first-level cache
_SMALLEST_MAXIMUM_BITS = 0x0D800000  # 2^-100; far below, 2047 / max|x| overflows: 0 is kept
_LOW_MASK = (1 << KEY_LOW_BITS) - 1
_UPPER_MASK = 0xFF ^ _LOW_MASK
Count = TypeVar("Count", Value[I64], int)


@dataclass(frozen=True, slots=True)
class Stored:
    """Elements of pages in their format; those of int8 are read as codes, two in a word.

    `in_groups`: rows of 12-bit codes, as K of int8 has them.
    """

    array: Array[Any]
    in_groups: bool = False

    def __add__(self, elements: Value[I64] | int) -> Stored:
        """Further on in each row."""
        return Stored(self.array + elements, self.in_groups)

    def past(self, elements: Value[I64]) -> Stored:
        """What comes after so many elements, a multiple of a vector, of a page's."""
        return Stored(self.array + self._spread(elements), self.in_groups)

    def key_words(self, pair: Value[I64], num_vectors: int) -> list[Value[U32]]:
        """Codes of elements 2 `pair` and 2 `pair` + 1 of sixteen keys, so many vectors of them."""
        group = (self.array + pair * ((KEY_GROUP + 1) * PAGE_SIZE)).view(U8)
        starts = range(0, num_vectors * VECTOR_LANES, VECTOR_LANES)
        return [_key_words(*(group.vector(r * PAGE_SIZE + at) for r in range(3))) for at in starts]

    def value_words(
        self, position: Value[I64], head_dim: int, num_vectors: int
    ) -> list[Value[U32]]:
        """Codes of one key's columns from `position` on and of the next key's beside them."""
        words: list[Value[U32]] = []
        for column in range(0, num_vectors * VECTOR_LANES, VECTOR_LANES):
            own, following = (
                self.array.vector(position + at) for at in (column, column + head_dim)
            )
            words.append(_in_halves(lambda k, o=own, f=following: o.shuffle(k, f).to(I16)))
        return words

    def vector(self, position: Value[I64] | int) -> Value[F32]:
        """Sixteen consecutive elements."""
        elements = self.array.vector(position)
        assert elements.dtype is not I8, "codes are read as words"
        return elements if elements.dtype is F32 else bf16_to_f32(elements)

    def ask(self, position: Value[I64], num_vectors: int) -> None:
        """Prefetch the lines that hold so many vectors from `position`, a multiple of a vector."""
        lines = self.array + self._spread(position)
        num_bytes = self._spread(num_vectors * VECTOR_LANES) * self.array.dtype.bits // 8
        for line in range(0, num_bytes, _LINE_BYTES):
            lines.prefetch(line, _TO_L2)

    def _spread(self, elements: Count) -> Count:
        """How many of the array's own elements so many take."""
        return elements // KEY_GROUP * (KEY_GROUP + 1) if self.in_groups else elements


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
        """K [D][32], of int8 [D/2][3][32]."""
        return Stored(self.memory.view(self._type), self.layout.has_scales)

    @property
    def values(self) -> Stored:
        """V [32][D]."""
        start = key_bytes(self.layout.kv_format, self.layout.head_dim)
        return Stored((self.memory + start).view(self._type))

    @property
    def key_scales(self) -> Array[F32]:
        """[32], of int8."""
        kv_format, head_dim = self.layout.kv_format, self.layout.head_dim
        start = key_bytes(kv_format, head_dim) + value_bytes(kv_format, head_dim)
        return (self.memory + start).view(F32)

    @property
    def value_scales(self) -> Array[F32]:
        """[32], of int8."""
        return self.key_scales + PAGE_SIZE

    def ask_scales(self) -> None:
        """Prefetch the scales of the keys and of the values, where there are any."""
        if self.layout.has_scales:
            for line in range(0, 2 * PAGE_SIZE * F32.bits // 8, _LINE_BYTES):
                self.key_scales.prefetch(line, _TO_L2)

    @property
    def _type(self) -> type[Any]:
        return _TYPES[self.layout.kv_format]

    def append(self, offset: Value[I64], key: Array[F32], value: Array[F32]) -> None:
        """Round a token's key and value [D] to the format, and keep them at `offset` of 32."""
        head_dim = self.layout.head_dim
        keys, values = self.keys.array + offset, self.values.array + offset * head_dim
        if self.layout.has_scales:
            code, self.key_scales[offset] = quantiser(key, head_dim, LARGEST_KEY_CODE)
            _write_key(keys, key, head_dim, code)
            code, self.value_scales[offset] = quantiser(value, head_dim, LARGEST_VALUE_CODE)
            for d in vectorized(head_dim):
                values[d] = code(value[d]).to(I8)
            return
        for d in loop(head_dim):
            keys[d * PAGE_SIZE] = self._rounded(key[d])
        for d in vectorized(head_dim):
            values[d] = self._rounded(value[d])

    def _rounded(self, x: Value[F32]) -> Value[Any]:
        return round_to_bf16(x) if self.layout.kv_format == "bf16" else x


def _in_halves(pairs: Callable[[list[int]], Value[I16]]) -> Value[U32]:
    """Sixteen words from what `pairs` makes of lanes interleaved with those of another vector.

    In halves, so that LLVM interleaves them where they lie instead of moving them across a vector.
    """
    halves: list[Value[U32]] = []
    for first in (0, 8):
        lanes = [lane for k in range(first, first + 8) for lane in (k, VECTOR_LANES + k)]
        halves.append(pairs(lanes).bits_as(U32))
    return halves[0].shuffle(range(VECTOR_LANES), halves[1])


def _key_words(even: Value[U8], odd: Value[U8], low: Value[U8]) -> Value[U32]:
    """Sixteen keys' codes of two elements from the upper bits of each and the lower of both."""

    def codes(lanes: list[int]) -> Value[I16]:
        first = (low << KEY_LOW_BITS).shuffle(lanes, even).bits_as(I16)
        second = (low & _UPPER_MASK).shuffle(lanes, odd).bits_as(I16)
        both = [lane for k in range(8) for lane in (k, 8 + k)]
        return first.shuffle(both, second) >> KEY_LOW_BITS

    return _in_halves(codes)


Code = Callable[[Value[F32]], Value[I32]]


def quantiser(x: Array[F32], count: int, largest_code: int) -> tuple[Code, Value[F32]]:
    """What makes elements of `x` their codes, and the codes' scale."""
    largest = RunningMax(I32, 0)
    for d in vectorized(count):
        largest.update(absolute_bits(x[d]))
    bits = largest.value()
    finite, (factor, scale) = bits < INFINITY_BITS, code_factors(bits, largest_code)

    def code(element: Value[F32]) -> Value[I32]:
        return select(finite, round_to_int(element * factor), 0)

    return code, scale


def code_factors(largest_bits: Value[I32], largest_code: int) -> tuple[Value[F32], Value[F32]]:
    """What elements are multiplied by to be codes, and the codes' scale, from `absolute_bits`.

    Where not all elements are finite, or all are tiny, their factor is 0.
    """
    finite, large = largest_bits < INFINITY_BITS, largest_bits >= _SMALLEST_MAXIMUM_BITS
    maximum = largest_bits.bits_as(F32)
    factor = select(finite & large, float(largest_code) / maximum, 0.0)
    scale = select(large, maximum / float(largest_code), 0.0)
    return factor, select(finite, scale, float("nan"))


def _write_key(column: Array[I8], key: Array[F32], head_dim: int, code: Code) -> None:
    """Write a key's codes to its column of a page's K [D/2][3][32]."""
    full = head_dim // VECTOR_LANES * VECTOR_LANES
    for base in loop(0, full, VECTOR_LANES):
        codes = code(key[VectorIndex(base)])
        for first in range(0, VECTOR_LANES, KEY_GROUP):
            group = [codes.lane(lane) for lane in range(first, first + KEY_GROUP)]
            _write_group(column, base + first, group)
    for first in loop(full, head_dim, KEY_GROUP):
        _write_group(column, first, [code(key[first + row]) for row in range(KEY_GROUP)])


def _write_group(column: Array[I8], first: Value[I64], codes: Sequence[Value[I32]]) -> None:
    rows = column + first // KEY_GROUP * ((KEY_GROUP + 1) * PAGE_SIZE)
    low = constant(0, I32)
    for row, code in enumerate(codes):
        rows[row * PAGE_SIZE] = (code >> KEY_LOW_BITS).to(I8)
        low = low | (code & _LOW_MASK) << (row * KEY_LOW_BITS)
    rows[KEY_GROUP * PAGE_SIZE] = low.to(I8)
