"""Prepare a linear's input: f32 as it is; integers q = rint(x · largest / max|x|) per group of k.

Rows come from any operator that can say its k-th sixteen values, so that RMSNorm and SwiGLU write
prepared rows directly. Where each word lies is `activation_layout`'s; knows no weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from jit_kernels.activation_layout import (
    GEMV_ROWS,
    INTEGER_FORMS,
    K_ALIGNMENT,
    REDUNDANT_ROWS,
    UNTILED,
    word_elements,
)
from jit_kernels.dsl import (
    INFINITY_BITS,
    Array,
    RunningMax,
    Value,
    Variable,
    VectorIndex,
    absolute_bits,
    fold_sum,
    if_else,
    index,
    loop,
    minimum,
    round_to_int,
    select,
    stack_array,
    vectorized,
    zeros,
)
from jit_kernels.errors import TraceError
from jit_kernels.kernel import kernel, worker
from jit_kernels.types import F32, I8, I16, I32, I64, U8

__all__ = [
    "PreparedOperands",
    "PreparedRows",
    "Values",
    "prepare",
    "prepare_group",
    "prepare_rows",
]

Values = Callable[[VectorIndex], Value[F32]]
"""Sixteen consecutive elements of one row."""

_BUFFER_ELEMENTS = 1024  # whole groups, about: 4 KB of the first-level cache
_SMALLEST_MAXIMUM_BITS = (127 - 100) << 23  # 2**-100: below, 32767 / max nears the largest float


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Where prepared rows go: 32-bit words and, for integers, {scale, scale * sum(q)} per group."""

    words: Array[I32]
    scales: Array[F32]
    copy_bytes: Value[I64]
    scales_copy_bytes: Value[I64]
    form: str
    group: int
    row_tile: int

    def words_per_row(self, n: Value[I64]) -> Value[I64]:
        """32-bit words of one row, K padded."""
        padded = (n + (K_ALIGNMENT - 1)) // K_ALIGNMENT * K_ALIGNMENT
        return padded // word_elements(self.form)

    def num_groups(self, n: Value[I64]) -> Value[I64]:
        """Scales of one row."""
        return (n + (self.group - 1)) // self.group

    def put_factors(
        self, row: Value[I64], n: Value[I64], group: Value[I64], factors: Sequence[Value[F32]]
    ) -> None:
        """Write what a group of a row of `n` elements is scaled by."""
        place = (row * self.num_groups(n) + group) * 2
        for offset, factor in enumerate(factors):
            self.scales[place + offset] = factor

    def copy(self, number: Value[I64]) -> PreparedRows:
        """The copy that belongs to worker `number`."""
        words = (self.words.view(U8) + self.copy_bytes * number).view(I32)
        scales = (self.scales.view(U8) + self.scales_copy_bytes * number).view(F32)
        return replace(self, words=words, scales=scales)


class PreparedOperands(NamedTuple):
    """Operands of every kernel that prepares rows; workers' copies lie so many bytes apart."""

    activations: Array[I32]
    activation_scales: Array[F32]
    copy_bytes: Value[I64]
    scales_copy_bytes: Value[I64]

    def rows(self, form: str, group: int, row_tile: int) -> PreparedRows:
        """Rows in a form of `activation_layout`, quantised by `group` elements where integers."""
        return PreparedRows(*self, form, group, row_tile)


@kernel
def prepare(
    rows: Array[I64],
    x: Array[F32],
    x_stride: Value[I64],
    n: Value[I64],
    prepared: PreparedOperands,
    *,
    form: str,
    group: int,
    row_tile: int,
) -> None:
    """Prepare the rows of `x` [R, n] as they are."""

    def row_of(row: Value[I64]) -> Values:
        source = x + row * x_stride
        return lambda k: source[k]

    prepare_rows(prepared.rows(form, group, row_tile), rows[0], n, row_of)


def prepare_rows(
    target: PreparedRows,
    num_rows: Value[I64],
    n: Value[I64],
    row_of: Callable[[Value[I64]], Values],
    of_many: Callable[[Value[I64]], Values] | Literal["done"] | None = None,
) -> None:
    """Write this worker's share of `num_rows` rows of `n` elements, in the layout for that many.

    of_many: a row where they lie in strips, if that is another; "done" where those are written.
    """
    me = worker()
    if target.row_tile == UNTILED:
        if of_many is not None:
            raise TraceError("rows that lie one after the other are the same whatever their number")
        for row in loop(*me.share(num_rows)):
            words = target.words + row * target.words_per_row(n)
            _write_row(target, words, 1, row, n, row_of(row))
        return
    for few in if_else(num_rows <= GEMV_ROWS):
        if few:
            redundant = num_rows <= REDUNDANT_ROWS
            first, last = me.share(num_rows)
            own = target.copy(select(redundant, me.index, 0))
            for row in loop(select(redundant, 0, first), select(redundant, num_rows, last)):
                words = own.words + row * target.words_per_row(n)
                _write_row(own, words, 1, row, n, row_of(row))
        elif of_many != "done":
            _write_strips(target, num_rows, n, of_many or row_of)


def _write_strips(
    target: PreparedRows,
    num_rows: Value[I64],
    n: Value[I64],
    row_of: Callable[[Value[I64]], Values],
) -> None:
    tile = target.row_tile
    begin, end = worker().share((num_rows + (tile - 1)) // tile)
    for row in loop(begin * tile, end * tile):
        words = target.words + (row // tile * target.words_per_row(n) * tile + row % tile)
        for exists in if_else(row < num_rows):
            if exists:
                _write_row(target, words, tile, row, n, row_of(row))
            else:
                for word in loop(target.words_per_row(n)):
                    words[word * tile] = 0


def prepare_group(
    target: PreparedRows,
    values: Array[F32],
    strip: Value[I64],
    num_rows: Value[I64],
    n: Value[I64],
    number: Value[I64],
) -> None:
    """Write group `number` of a strip's rows of integers from `values` [row][group]; it is whole.

    The strip has `num_rows` of them; those that it lacks are 0.
    """
    tile, group, maxima = target.row_tile, index(target.group), stack_array(I32, target.row_tile)
    words_in_group = target.group // word_elements(target.form)
    first = strip * target.words_per_row(n) + number * words_in_group
    words = target.words + first * tile
    for row in loop(num_rows):
        maxima[row] = _largest(values + row * group, group)
    for row in loop(num_rows):
        largest, own = maxima[row], values + row * group
        factors = _quantize(target.form, own, group, largest, words + row, tile)
        target.put_factors(strip * tile + row, n, number, factors)
    for row in loop(num_rows, tile):
        for word in range(words_in_group):
            words[row + word * tile] = 0


def _write_row(
    target: PreparedRows,
    words: Array[I32],
    stride: int,
    row: Value[I64],
    n: Value[I64],
    values: Values,
) -> None:
    if target.form == "f32":
        for k in vectorized(n):
            _put(words, stride, k.base, _padded(values, k).bits_as(I32))
        return
    # First a row's values, then its groups' maxima, then their integers: none waits for another.
    most = max(_BUFFER_ELEMENTS // target.group, 1) * target.group
    buffer, maxima = stack_array(F32, most), stack_array(I32, most // target.group)
    for first in loop(0, n, most):
        length = minimum(n - first, most)
        for k in vectorized(length):
            buffer[VectorIndex(k.base)] = _padded(values, VectorIndex(first + k.base, k.mask))
        for start in loop(0, length, target.group):
            group = minimum(length - start, target.group)
            maxima[start // target.group] = _largest(buffer + start, group)
        for start in loop(0, length, target.group):
            here = words + (first + start) // word_elements(target.form) * stride
            group = minimum(length - start, target.group)
            largest = maxima[start // target.group]
            factors = _quantize(target.form, buffer + start, group, largest, here, stride)
            target.put_factors(row, n, (first + start) // target.group, factors)


def _largest(values: Array[F32], length: Value[I64]) -> Value[I32]:
    """The bits of one group's largest magnitude."""
    seen = RunningMax(I32, 0)
    for k in loop(0, length, 16):
        seen.update(absolute_bits(values.vector(k)))
    return seen.value()


def _quantize(
    form: str,
    values: Array[F32],
    length: Value[I64],
    bits: Value[I32],
    words: Array[I32],
    stride: int,
) -> tuple[Value[F32], Value[F32]]:
    """Write one group's q; return its scale and scale * sum(q), that exact to 256 elements.

    bits: of the group's largest magnitude.
    """
    integers = INTEGER_FORMS[form]
    maximum, finite = bits.bits_as(F32), bits < INFINITY_BITS
    large = bits >= _SMALLEST_MAXIMUM_BITS
    inverse = float(integers.largest) / maximum
    sums = Variable(zeros(I32))
    for k in loop(0, length, 16):
        q = select(finite & large, round_to_int(values.vector(k) * inverse), 0)
        sums.set(sums.get() + q)
        stored = q.to(I16 if integers.bits == 16 else I8).shuffle(integers.order)
        _put(words, stride, k // word_elements(form), stored.bits_as(I32))
    scale = select(finite, select(large, maximum / float(integers.largest), 0.0), float("nan"))
    return scale, scale * fold_sum(sums.get()).to(F32)


def _padded(values: Values, k: VectorIndex) -> Value[F32]:
    """The values, zero past the end whatever the operator makes of zeros."""
    value = values(k)
    return value if k.mask is None else select(k.mask, value, 0.0)


def _put(words: Array[I32], stride: int, first: Value[I64], vector: Value[I32]) -> None:
    """Store consecutive words of one row, `stride` apart."""
    if stride == 1:
        words[first] = vector
        return
    column = words + first * stride
    for lane in range(vector.lanes):
        column[lane * stride] = vector.lane(lane)
