"""Products by groups of unsigned integer weights; knows nothing of how many bits one has.

dot is the exact int32 product of a group's integer activations and its weights; a_sum is the scaled
sum of the activations, w_minimum the real value of weight 0. Per group, in order, from y = 0:

    y = fma(f32(dot) * a_scale, w_scale, y);  y = fma(a_sum, w_minimum, y)

A weight group longer than an activation group lends its scale to `groups_per_scale` of them. A
row whose activations are not finite has a_scale = NaN and comes out NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    Variable,
    VectorIndex,
    fma,
    half_to_f32,
    index,
    loop,
    minimum,
    select,
    when,
)
from jit_kernels.dsl.trace import current
from jit_kernels.kernels.linear_blocks import multiply
from jit_kernels.kernels.linear_operands import (
    Block,
    Destination,
    Product,
    Scratch,
    own_copy,
    padded_steps,
)
from jit_kernels.kernels.linear_schedule import DEFAULT_SCHEDULE, Schedule
from jit_kernels.kernels.linear_tiles import (
    ActivationRows,
    Arithmetic,
    Prefetch,
    Tile,
    integer_dots,
)
from jit_kernels.types import F32, I32, I64, U8, U16, U32

__all__ = ["GroupedOperands", "GroupedWeights", "grouped_weights", "multiply_groups"]


@dataclass(frozen=True, slots=True)
class GroupedWeights:
    """Panels of unsigned integers, their factors per group, and the activations' scales."""

    arithmetic: Arithmetic
    panels: Array[U32]
    num_words: Value[I64]
    scale: Array[U16]
    minimum: Array[U16]
    scale_format: str
    num_groups: Value[I64]
    groups_per_scale: Value[I64]
    num_scales: Value[I64]
    activation_scales: Array[F32]
    group_words: int
    schedule: Schedule

    @property
    def steps(self) -> int:
        """Words of activations that a word of weights meets."""
        return self.arithmetic.steps

    def packed(self, block: Block) -> Array[U32]:
        """Where a block begins."""
        first = block.panel * self.num_words + block.first_word
        return self.panels + first * VECTOR_LANES

    def num_streams(self, num_rows: int) -> int:
        """One: the words of a group make independent chains."""
        return 1

    def _add_group(
        self,
        tile: Tile,
        dots: Sequence[Value[I32]],
        factors: tuple[Value[F32], Value[F32]],
        group: Value[I64],
        rows: Sequence[Value[I64]],
    ) -> None:
        """The epilogue of one group."""
        w_scale, w_minimum = factors
        for position, (dot, row) in enumerate(zip(dots, rows, strict=True)):
            pair = self.activation_scales + (row * self.num_groups + group) * 2
            y = fma(dot.to(F32) * pair.broadcast(0), w_scale, tile[position])
            tile[position] = fma(pair.broadcast(1), w_minimum, y)

    def multiply_panels(
        self,
        panels: Sequence[Value[I64]],
        tiles: Sequence[Tile],
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
        prefetch: Prefetch | None,
    ) -> None:
        """Set the tile's sums to whole rows' products, straight from the packed words."""
        factors = [_Factors(self, panel) for panel in panels]
        num_whole = self.num_words // self.group_words
        rest = self.num_words - num_whole * self.group_words

        def add(first_word: Value[I64], num_words: Value[I64], whole: bool) -> None:
            for panel, tile, own in zip(panels, tiles, factors, strict=True):
                block = Block(panel, first_word, num_words)
                self._add_packed(tile, block, own.take(), activations, rows, whole, prefetch)

        for group in loop(num_whole):
            add(group * self.group_words, index(self.group_words), whole=True)
        with when(rest > 0):
            add(num_whole * self.group_words, rest, whole=False)

    def _add_packed(
        self,
        tile: Tile,
        block: Block,
        factors: tuple[Value[F32], Value[F32]],
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
        whole: bool,
        prefetch: Prefetch | None,
    ) -> None:
        """Add one group; its weights are decoded once for all rows."""
        words = self.packed(block)
        here = activations.after(block.first_word * self.steps)
        group = block.first_word // self.group_words
        most = self.schedule.words_unrolled(current().isa, len(rows), self.group_words)
        unroll = most if whole else 1
        dots = integer_dots(self.arithmetic, words, block.num_words, here, unroll, prefetch)
        self._add_group(tile, dots, factors, group, rows)

    def unpack(self, block: Block, scratch: Scratch) -> Array[U32]:
        """Widen words to operands, where one holds several, and the groups' factors to float32."""
        packed = self.packed(block)
        if self.steps > 1:
            self._widen(packed, block.num_words, scratch)
        cursor = _Factors(self, block.panel, block.first_word // self.group_words)
        for word in loop(0, block.num_words, self.group_words):
            place = word // self.group_words * (2 * VECTOR_LANES)
            for which, factor in enumerate(cursor.take()):
                scratch.factors[VectorIndex(place + which * VECTOR_LANES)] = factor
        return scratch.unpacked if self.steps > 1 else packed

    def _widen(self, packed: Array[U32], num_words: Value[I64], scratch: Scratch) -> None:
        for word in loop(num_words):
            vector = packed.vector(word * VECTOR_LANES)
            for step, operand in enumerate(self.arithmetic.decode(vector)):
                position = (word * self.steps + step) * VECTOR_LANES
                scratch.unpacked[VectorIndex(position)] = operand

    def add_unpacked(
        self,
        tile: Tile,
        block: Block,
        unpacked: Array[U32],
        scratch: Scratch,
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
    ) -> None:
        """Add the groups of a block of operands, in order."""
        first_group = block.first_word // self.group_words
        unroll = 2 if self.steps > 1 else 1  # divides what a tail may leave
        for word in loop(0, block.num_words, self.group_words):
            num_steps = minimum(block.num_words - word, self.group_words) * self.steps
            operands = unpacked + word * (self.steps * VECTOR_LANES)
            here = activations.after(word * self.steps)
            dots = integer_dots(self.arithmetic.unpacked, operands, num_steps, here, unroll)
            group = word // self.group_words
            factors = scratch.factors + group * (2 * VECTOR_LANES)
            both = factors.vector(0), factors.vector(VECTOR_LANES)
            self._add_group(tile.hidden(), dots, both, first_group + group, rows)


class _Factors:
    """Scales and minima of a panel's columns, one activation group after the other."""

    def __init__(
        self, weights: GroupedWeights, panel: Value[I64], first_group: Value[I64] | int = 0
    ) -> None:
        self._weights = weights
        shared, first = weights.groups_per_scale, index(first_group)
        at_start = isinstance(first_group, int)
        place = index(0) if at_start else first // shared
        self._used = Variable(index(0) if at_start else first - place * shared)
        self._place = Variable(panel * weights.num_scales + place)

    def take(self) -> tuple[Value[F32], Value[F32]]:
        """The factors of the next group."""
        weights, place = self._weights, self._place.get()
        used = self._used.get() + 1
        spent = used.equals(weights.groups_per_scale)
        self._used.set(select(spent, 0, used))
        self._place.set(select(spent, place + 1, place))
        at = place * VECTOR_LANES
        if weights.scale_format == "f32":
            return weights.scale.view(F32).vector(at), weights.minimum.view(F32).vector(at)
        return half_to_f32(weights.scale.vector(at)), half_to_f32(weights.minimum.vector(at))


class GroupedOperands(NamedTuple):
    """Operands of a product with grouped weights; writes 16 * num_panels columns a row.

    `scale` and `minimum` hold float16 or float32 elements, as a kernel's `scale_format` says.
    """

    rows: Array[I64]
    activations: Array[U8]
    activation_scales: Array[F32]
    copy_bytes: Value[I64]
    scales_copy_bytes: Value[I64]
    panels: Array[U8]
    scale: Array[U16]
    minimum: Array[U16]
    bias: Array[F32]
    residual: Array[F32]
    residual_stride: Value[I64]
    out: Array[F32]
    out_stride: Value[I64]
    in_features: Value[I64]
    num_panels: Value[I64]
    groups_per_scale: Value[I64]
    counter: Array[I64]
    workspace: Array[U8]
    workspace_bytes: Value[I64]


def multiply_groups(
    arithmetic: Arithmetic,
    given: GroupedOperands,
    *,
    group: int,
    scale_format: str,
    has_bias: bool,
    has_residual: bool,
    row_tile: int,
    schedule: str,
) -> None:
    """Multiply prepared integer rows by panels whose words `arithmetic` decodes."""
    scratch = Scratch.of_worker(given.workspace, given.workspace_bytes)
    num_rows = given.rows[0]
    weights = grouped_weights(
        arithmetic,
        given.panels,
        (given.scale, given.minimum),
        own_copy(given.activation_scales, num_rows, given.scales_copy_bytes),
        given.in_features,
        given.groups_per_scale,
        group=group,
        scale_format=scale_format,
        schedule=schedule,
    )
    product = Product(
        num_rows=num_rows,
        activations=own_copy(given.activations, num_rows, given.copy_bytes).view(U32),
        row_steps=padded_steps(given.in_features, arithmetic.elements),
        num_words=weights.num_words,
        num_panels=given.num_panels,
        counter=given.counter,
        scratch=scratch,
        destination=Destination(
            given.out,
            given.out_stride,
            given.bias if has_bias else None,
            given.residual if has_residual else None,
            given.residual_stride,
        ),
        row_tile=row_tile,
        schedule=weights.schedule,
    )
    multiply(product, weights)


def grouped_weights(
    arithmetic: Arithmetic,
    panels: Array[U8],
    factors: tuple[Array[U16], Array[U16]],
    activation_scales: Array[F32],
    in_features: Value[I64],
    groups_per_scale: Value[I64],
    *,
    group: int,
    scale_format: str,
    schedule: str = DEFAULT_SCHEDULE,
) -> GroupedWeights:
    """The weights that a kernel's operands and constants describe."""
    per_word = arithmetic.elements * arithmetic.steps
    num_groups = (in_features + (group - 1)) // group
    scale, minimum = factors
    return GroupedWeights(
        arithmetic=arithmetic,
        panels=panels.view(U32),
        num_words=(in_features + (per_word - 1)) // per_word,
        scale=scale,
        minimum=minimum,
        scale_format=scale_format,
        num_groups=num_groups,
        groups_per_scale=groups_per_scale,
        num_scales=(num_groups + groups_per_scale - 1) // groups_per_scale,
        activation_scales=activation_scales,
        group_words=group // per_word,
        schedule=Schedule.of(current().isa, schedule),
    )
