"""Products by groups of unsigned integer weights; knows nothing of how many bits one has.

dot is the exact int32 product of a group's integer activations and its weights; a_sum is the scaled
sum of the activations, w_minimum the real value of weight 0. Per group, in order, from y = 0:

    y = fma(f32(dot) * a_scale, w_scale, y);  y = fma(a_sum, w_minimum, y)

A weight group longer than an activation group lends its scale to `groups_per_scale` of them. A
row whose activations are not finite has a_scale = NaN and comes out NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from jit_kernels.kernels.gated_units import gated_units
from jit_kernels.kernels.linear_blocks import multiply
from jit_kernels.kernels.linear_operands import (
    Block,
    Destination,
    Piece,
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
from jit_kernels.kernels.prepare import PreparedOperands
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

    def pieces(self) -> Iterator[Piece]:
        """One group of activations after the other."""
        positions = _FactorPositions(self.groups_per_scale)
        num_whole = self.num_words // self.group_words
        rest = self.num_words - num_whole * self.group_words
        for group in loop(num_whole):
            first, length = group * self.group_words, index(self.group_words)
            yield Piece(first, length, positions.take(), is_whole=True)
        with when(rest > 0):
            yield Piece(num_whole * self.group_words, rest, positions.take(), is_whole=False)

    def add_packed(
        self,
        tiles: Sequence[Tile],
        panels: Sequence[Value[I64]],
        piece: Piece,
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
        prefetch: Prefetch | None,
    ) -> None:
        """Add a group of each panel; its weights are decoded once for all rows."""
        here = activations.after(piece.first_word * self.steps)
        group = piece.first_word // self.group_words
        most = self.schedule.words_unrolled(current().isa, len(rows), self.group_words)
        unroll = most if piece.is_whole else 1
        for panel, tile in zip(panels, tiles, strict=True):
            factors, words = self._factors(panel, piece.factors), self.packed(piece.of(panel))
            dots = integer_dots(self.arithmetic, words, piece.num_words, here, unroll, prefetch)
            self._add_group(tile, dots, factors, group, rows)

    def _factors(self, panel: Value[I64], position: Value[I64]) -> tuple[Value[F32], Value[F32]]:
        """A panel's scales and minima at one position."""
        at = (panel * self.num_scales + position) * VECTOR_LANES
        if self.scale_format == "f32":
            return self.scale.view(F32).vector(at), self.minimum.view(F32).vector(at)
        return half_to_f32(self.scale.vector(at)), half_to_f32(self.minimum.vector(at))

    def unpack(self, block: Block, scratch: Scratch) -> Array[U32]:
        """Widen words to operands, where one holds several, and the groups' factors to float32."""
        packed = self.packed(block)
        if self.steps > 1:
            self._widen(packed, block.num_words, scratch)
        positions = _FactorPositions(self.groups_per_scale, block.first_word // self.group_words)
        for word in loop(0, block.num_words, self.group_words):
            place = word // self.group_words * (2 * VECTOR_LANES)
            for which, factor in enumerate(self._factors(block.panel, positions.take())):
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


class _FactorPositions:
    """Where a panel's factors are, one activation group after the other; divides only once."""

    def __init__(self, groups_per_scale: Value[I64], first_group: Value[I64] | int = 0) -> None:
        self._shared, first = groups_per_scale, index(first_group)
        at_start = isinstance(first_group, int)
        position = index(0) if at_start else first // groups_per_scale
        self._used = Variable(index(0) if at_start else first - position * groups_per_scale)
        self._position = Variable(position)

    def take(self) -> Value[I64]:
        """The position of the next group's."""
        position, used = self._position.get(), self._used.get() + 1
        spent = used.equals(self._shared)
        self._used.set(select(spent, 0, used))
        self._position.set(select(spent, position + 1, position))
        return position


class GroupedOperands(NamedTuple):
    """Operands of a product with grouped weights; writes 16 * num_panels columns a row.

    `scale` and `minimum` hold float16 or float32 elements, as a kernel's `scale_format` says. Units
    of a `gated` product go to `unit_activations` and `unit_scales` where `unit_form` says how.
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
    unit_activations: Array[I32]
    unit_scales: Array[F32]


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
    gated: str,
    unit_form: str,
    unit_group: int,
) -> None:
    """Multiply prepared integer rows by panels whose words `arithmetic` decodes."""
    own = PreparedOperands(given.unit_activations, given.unit_scales, index(0), index(0))
    prepared = own.rows(unit_form, unit_group, row_tile)
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
            gated_units(gated, prepared if unit_form else None),
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
