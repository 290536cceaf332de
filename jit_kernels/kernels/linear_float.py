"""Linear, float weights: out[r, n] = sum over k of x[r, k] * w[k, n], one fma chain from k = 0.

Weights are float32 or bfloat16 panels; a bfloat16 weight is widened exactly. Where K is odd, the
bfloat16 chain ends with the zero that pads the last pair. Bias and residual are added once, last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jit_kernels.dsl import VECTOR_LANES, Array, Value, Variable, VectorIndex, index, loop, minimum
from jit_kernels.dsl.trace import current
from jit_kernels.kernel import kernel
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
    BF16_PAIRS,
    F32_WORDS,
    ActivationRows,
    Arithmetic,
    Prefetch,
    Tile,
    accumulate,
)
from jit_kernels.types import F32, I64, U8, U32

__all__ = ["FloatWeights", "float_weights", "linear_bf16", "linear_f32"]

_PIECE_WORDS = 64


@dataclass(frozen=True, slots=True)
class FloatWeights:
    """Panels of float32 or bfloat16 weights."""

    arithmetic: Arithmetic
    panels: Array[U32]
    num_words: Value[I64]

    @property
    def steps(self) -> int:
        """Weights in a word."""
        return self.arithmetic.steps

    def num_streams(self, num_rows: int) -> int:
        """Chains of fma are serial: one or two rows of one panel would leave the units waiting."""
        return 2 if num_rows <= 2 else 1

    def packed(self, block: Block) -> Array[U32]:
        """Where a block begins."""
        first = block.panel * self.num_words + block.first_word
        return self.panels + first * VECTOR_LANES

    def pieces(self) -> Iterator[Piece]:
        """Some words at a time."""
        for first_word in loop(0, self.num_words, _PIECE_WORDS):
            num_words = minimum(self.num_words - first_word, _PIECE_WORDS)
            yield Piece(first_word, num_words, index(0), is_whole=False)

    def add_packed(
        self,
        tiles: Sequence[Tile],
        panels: Sequence[Value[I64]],
        piece: Piece,
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
        prefetch: Prefetch | None,
    ) -> None:
        """Continue every chain through the packed words of panels side by side."""
        here = activations.after(piece.first_word * self.steps)
        words = [self.packed(piece.of(panel)) for panel in panels]
        _continue_chains(self.arithmetic, tiles, words, piece.num_words, here, prefetch)

    def unpack(self, block: Block, scratch: Scratch) -> Array[U32]:
        """Widen bfloat16 into the scratch; float32 lies ready."""
        packed = self.packed(block)
        if self.steps == 1:
            return packed
        for word in loop(block.num_words):
            vector = packed.vector(word * VECTOR_LANES)
            for step, weight in enumerate(self.arithmetic.decode(vector)):
                position = (word * self.steps + step) * VECTOR_LANES
                scratch.unpacked.view(F32)[VectorIndex(position)] = weight
        return scratch.unpacked

    def add_unpacked(
        self,
        tile: Tile,
        block: Block,
        unpacked: Array[U32],
        scratch: Scratch,
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
    ) -> None:
        """Continue every chain through a block of float32 weights."""
        num_steps = block.num_words * self.steps
        _continue_chains(F32_WORDS, [tile], [unpacked], num_steps, activations)


def _continue_chains(
    arithmetic: Arithmetic,
    tiles: Sequence[Tile],
    words: Sequence[Array[U32]],
    num_words: Value[I64],
    activations: ActivationRows,
    prefetch: Prefetch | None = None,
) -> None:
    sums = [[Variable(tile[row]) for row in range(tile.rows)] for tile in tiles]
    unroll = 4 // arithmetic.steps
    accumulate(arithmetic, words, num_words, activations, sums, unroll=unroll, prefetch=prefetch)
    for tile, totals in zip(tiles, sums, strict=True):
        for row, total in enumerate(totals):
            tile[row] = total.get()


class _FloatOperands(NamedTuple):
    """Operands of a product with float weights; writes 16 * num_panels columns a row."""

    rows: Array[I64]
    activations: Array[F32]
    copy_bytes: Value[I64]
    panels: Array[U32]
    bias: Array[F32]
    residual: Array[F32]
    residual_stride: Value[I64]
    out: Array[F32]
    out_stride: Value[I64]
    in_features: Value[I64]
    num_panels: Value[I64]
    counter: Array[I64]
    workspace: Array[U8]
    workspace_bytes: Value[I64]


def _multiply_rows(
    arithmetic: Arithmetic,
    given: _FloatOperands,
    *,
    has_bias: bool,
    has_residual: bool,
    row_tile: int,
    schedule: str,
    gated: str,
) -> None:
    scratch = Scratch.of_worker(given.workspace, given.workspace_bytes)
    num_rows = given.rows[0]
    weights = float_weights(arithmetic, given.panels, given.in_features)
    product = Product(
        num_rows=num_rows,
        activations=own_copy(given.activations, num_rows, given.copy_bytes).view(U32),
        row_steps=padded_steps(given.in_features, 1),
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
            gated_units(gated),
        ),
        row_tile=row_tile,
        schedule=Schedule.of(current().isa, schedule),
    )
    multiply(product, weights)


def float_weights(
    arithmetic: Arithmetic, panels: Array[U32], in_features: Value[I64]
) -> FloatWeights:
    """The weights in panels of K = `in_features` words of `arithmetic`."""
    num_words = (in_features + (arithmetic.steps - 1)) // arithmetic.steps
    return FloatWeights(arithmetic, panels, num_words)


@kernel
def linear_f32(
    given: _FloatOperands,
    *,
    has_bias: bool,
    has_residual: bool,
    row_tile: int,
    schedule: str = DEFAULT_SCHEDULE,
    gated: str = "",
) -> None:
    """Multiply prepared float32 rows by float32 panels."""
    _multiply_rows(
        F32_WORDS, given, has_bias=has_bias, has_residual=has_residual, row_tile=row_tile,
        schedule=schedule, gated=gated,
    )  # fmt: skip


@kernel
def linear_bf16(
    given: _FloatOperands,
    *,
    has_bias: bool,
    has_residual: bool,
    row_tile: int,
    schedule: str = DEFAULT_SCHEDULE,
    gated: str = "",
) -> None:
    """Multiply prepared float32 rows by bfloat16 panels."""
    _multiply_rows(
        BF16_PAIRS, given, has_bias=has_bias, has_residual=has_residual, row_tile=row_tile,
        schedule=schedule, gated=gated,
    )  # fmt: skip
