"""What a matrix product is made of: operands, scratch, destination, and what a format must offer.

Knows nothing of the order of the work (`linear_blocks`) or of what packed words mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from jit_kernels.activation_layout import K_ALIGNMENT, MAX_UNIT_COLUMNS, REDUNDANT_ROWS
from jit_kernels.dsl import VECTOR_LANES, Array, Value, VectorIndex, index, loop, minimum, select
from jit_kernels.kernel import worker
from jit_kernels.kernels.gated_units import GatedUnits, Turn
from jit_kernels.kernels.linear_schedule import Schedule
from jit_kernels.kernels.linear_tiles import ActivationRows, Arithmetic, Prefetch, Tile
from jit_kernels.types import F32, I64, U8, U32, DType

__all__ = [
    "BLOCK_STEPS",
    "PANEL_SUMS",
    "ROW_BLOCK",
    "WORKSPACE_BYTES",
    "Block",
    "Destination",
    "Piece",
    "Product",
    "Scratch",
    "Weights",
    "own_copy",
    "padded_steps",
]

D = TypeVar("D", bound=DType)

BLOCK_STEPS = 256  # at most, of K in the blocked form: 16 KB of weights, half of a small L1
ROW_BLOCK = 256  # at most, rows of activations that stay in L2 while panels pass
_MAX_GROUPS = 32  # of 32 in a K block of 1024

_VECTOR_BYTES = 4 * VECTOR_LANES
_UNPACKED_BYTES = BLOCK_STEPS * _VECTOR_BYTES
_FACTORS_BYTES = _MAX_GROUPS * 2 * _VECTOR_BYTES
PANEL_SUMS = (ROW_BLOCK + 16) * VECTOR_LANES
"""Sums of one panel and a row block; a gated product has those of gate and up side by side."""
_TILES_BYTES = 2 * PANEL_SUMS * 4
_UNITS_BYTES = PANEL_SUMS // VECTOR_LANES * MAX_UNIT_COLUMNS * 4
WORKSPACE_BYTES = _UNPACKED_BYTES + _FACTORS_BYTES + _TILES_BYTES + _UNITS_BYTES
"""Scratch of one worker, for every format and shape."""


@dataclass(frozen=True, slots=True)
class Block:
    """`num_words` packed words, from `first_word`, of every column of a panel."""

    panel: Value[I64]
    first_word: Value[I64]
    num_words: Value[I64]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of K, of whichever panel: small enough to stay in the first-level cache.

    `factors`: the position, within a panel, of the factors that it shares; 0 where a format has
    none.  `is_whole`: whether it has as many words as the format likes.
    """

    first_word: Value[I64]
    num_words: Value[I64]
    factors: Value[I64]
    is_whole: bool

    def of(self, panel: Value[I64]) -> Block:
        """The part that belongs to `panel`."""
        return Block(panel, self.first_word, self.num_words)


@dataclass(frozen=True, slots=True)
class Scratch:
    """A worker's workspace: unpacked weights, factors of their groups, tiles of sums, units."""

    unpacked: Array[U32]
    factors: Array[F32]
    tiles: Array[F32]
    units: Array[F32]

    @staticmethod
    def of_worker(workspace: Array[U8], workspace_bytes: Value[I64]) -> Scratch:
        """The part of `workspace` that belongs to the running worker."""
        base = workspace + worker().index * workspace_bytes
        factors = base + _UNPACKED_BYTES
        tiles = factors + _FACTORS_BYTES
        units = tiles + _TILES_BYTES
        return Scratch(base.view(U32), *(part.view(F32) for part in (factors, tiles, units)))


class Weights(Protocol):
    """One format's weights and the activations' scales, where the format has any."""

    @property
    def arithmetic(self) -> Arithmetic:
        """What words of the format mean."""
        ...

    @property
    def steps(self) -> int:
        """Activation words that one packed word meets."""
        ...

    def num_streams(self, num_rows: int) -> int:
        """Panels, far apart, that the GEMV form for `num_rows` rows takes side by side."""
        ...

    def packed(self, block: Block) -> Array[U32]:
        """Where a block begins."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """K from its start to its end."""
        ...

    def add_packed(
        self,
        tiles: Sequence[Tile],
        panels: Sequence[Value[I64]],
        piece: Piece,
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
        prefetch: Prefetch | None,
    ) -> None:
        """Add a piece of whole rows to the panels' tiles straight from the packed words."""
        ...

    def unpack(self, block: Block, scratch: Scratch) -> Array[U32]:
        """Unpack a block into the scratch, or return where it already lies ready."""
        ...

    def add_unpacked(
        self,
        tile: Tile,
        block: Block,
        unpacked: Array[U32],
        scratch: Scratch,
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
    ) -> None:
        """Add an unpacked block to the tile's sums."""
        ...


@dataclass(frozen=True, slots=True)
class Destination:
    """Where sums go, and what is added to them once at the end: bias, then residual.

    units: of a gated product, whose first half of panels gates the second; it has no residual.
    """

    out: Array[F32]
    out_stride: Value[I64]
    bias: Array[F32] | None
    residual: Array[F32] | None
    residual_stride: Value[I64]
    units: GatedUnits | None = None

    def finish(self, row: Value[I64], panel: Value[I64], total: Value[F32]) -> None:
        """Write one row of a panel's columns."""
        column = panel * VECTOR_LANES
        total = self.biased(total, panel)
        if self.residual is not None:
            total = total + self.residual.vector(row * self.residual_stride + column)
        self.out[VectorIndex(row * self.out_stride + column)] = total

    def biased(self, total: Value[F32], panel: Value[I64]) -> Value[F32]:
        """A row's sums of a panel with their bias."""
        return total if self.bias is None else total + self.bias.vector(panel * VECTOR_LANES)

    def prefetch(self, row: Value[I64], panel: Value[I64]) -> None:
        """Ask for the lines that `finish` will touch."""
        column = panel * VECTOR_LANES
        (self.out + (row * self.out_stride + column)).prefetch(0)
        if self.residual is not None:
            (self.residual + (row * self.residual_stride + column)).prefetch(0)


@dataclass(frozen=True, slots=True)
class Product:
    """One product: [R, K] activations by K x (16 * num_panels) weights.

    `activations` are words in the layout of `activation_layout`; `num_words` is K in packed words.
    """

    num_rows: Value[I64]
    activations: Array[U32]
    row_steps: Value[I64]
    num_words: Value[I64]
    num_panels: Value[I64]
    counter: Array[I64]
    scratch: Scratch
    destination: Destination
    row_tile: int
    schedule: Schedule

    def finish_strip(
        self, strip: Value[I64], place: Value[I64], panel: Value[I64], turn: Turn
    ) -> None:
        """Write a strip's rows of a panel, or of the unit that ends with it.

        place: of the strip in its row block, and so of its sums and units in the scratch.
        """
        to, first_row = self.destination, strip * self.row_tile
        num_rows = minimum(self.num_rows - first_row, self.row_tile)
        sums = self.scratch.tiles + place * (self.row_tile * VECTOR_LANES)
        if to.units is None:
            for row in loop(num_rows):
                to.finish(first_row + row, panel, sums.vector(row * VECTOR_LANES))
            return
        column = panel - self.num_panels // 2
        kept = self.scratch.units + place * (self.row_tile * to.units.num_panels * VECTOR_LANES)
        for row in loop(num_rows):
            gate, up = (sums.vector(row * VECTOR_LANES + begin) for begin in (0, PANEL_SUMS))
            unit = to.units.activation(to.biased(gate, column)) * to.biased(up, panel)
            if to.units.prepared is None:
                at = (first_row + row) * to.out_stride + column * VECTOR_LANES
                to.out[VectorIndex(at)] = unit
            else:
                to.units.keep(unit, kept, row, turn)
        if to.units.prepared is not None:
            n = self.num_panels // 2 * VECTOR_LANES
            to.units.prepare(kept, strip, num_rows, n, column, turn)

    def prefetch(self, first_row: Value[I64], panel: Value[I64]) -> None:
        """Ask for the lines that a strip's `finish_strip` will touch in memory."""
        units = self.destination.units
        if units is not None and units.prepared is not None:
            return
        column = panel if units is None else panel - self.num_panels // 2
        for row in range(self.row_tile):
            self.destination.prefetch(first_row + row, column)

    def rows_from(self, first: Value[I64], count: int) -> ActivationRows:
        """`count` rows of activations that lie one after the other, not in strips."""
        starts = [self.activations + (first + row) * self.row_steps for row in range(count)]
        return ActivationRows(starts, 1)


def own_copy(array: Array[D], num_rows: Value[I64], copy_bytes: Value[I64]) -> Array[D]:
    """This worker's copy of what `prepare` wrote: copies exist only for few rows."""
    skipped = select(num_rows <= REDUNDANT_ROWS, worker().index * copy_bytes, index(0))
    return (array.view(U8) + skipped).view(array.dtype)


def padded_steps(in_features: Value[I64], elements_per_step: int) -> Value[I64]:
    """Words of a prepared row."""
    padded = (in_features + (K_ALIGNMENT - 1)) // K_ALIGNMENT * K_ALIGNMENT
    return padded // elements_per_step
