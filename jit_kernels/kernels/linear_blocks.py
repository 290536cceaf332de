"""The matrix product out = activations @ weights: GEMV forms for few rows, blocked for many.

One kernel serves every number of rows and chooses its form when it runs. Each output element is
computed by the same operations in the same order in every form, so its bits do not depend on the
other rows, the number of workers, or who computes what.

    1, 2, 3, 4, 5-8 rows   a unit is a few panels; weights are decoded straight into the sums
    more                   a unit is (row block, panel); per K block the panel's weights are
                           unpacked once into the workspace, then met by every strip of the block

Knows the order of the work; the formats (`Weights`) know what their words mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from jit_kernels.activation_layout import GEMV_ROWS, K_ALIGNMENT, REDUNDANT_ROWS
from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    VectorIndex,
    claimed,
    index,
    loop,
    maximum,
    minimum,
    select,
    when,
)
from jit_kernels.dsl.trace import current
from jit_kernels.kernel import worker
from jit_kernels.kernels.linear_tiles import ActivationRows, Prefetch, Tile, rows_per_pass
from jit_kernels.types import F32, I64, U8, U32, DType

__all__ = [
    "WORKSPACE_BYTES",
    "Block",
    "Destination",
    "Product",
    "Scratch",
    "Weights",
    "multiply",
    "own_copy",
    "padded_steps",
]

D = TypeVar("D", bound=DType)

BLOCK_STEPS = 256  # of K in the blocked form: 16 KB of unpacked weights, half of a small L1
_ROW_BLOCK = 256  # rows of activations that stay in L2 while panels pass
_MAX_GROUPS = 16  # of 32 in a K block of 512
_UNITS_PER_WORKER = 8
_PREFETCH_BYTES = 6144  # what memory delivers in its own latency, and some more

_VECTOR_BYTES = 4 * VECTOR_LANES
_UNPACKED_BYTES = BLOCK_STEPS * _VECTOR_BYTES
_FACTORS_BYTES = _MAX_GROUPS * 2 * _VECTOR_BYTES
_TILES_BYTES = (_ROW_BLOCK + 16) * _VECTOR_BYTES
WORKSPACE_BYTES = _UNPACKED_BYTES + _FACTORS_BYTES + _TILES_BYTES
"""Scratch of one worker, for every format and shape."""


@dataclass(frozen=True, slots=True)
class Block:
    """`num_words` packed words, from `first_word`, of every column of a panel."""

    panel: Value[I64]
    first_word: Value[I64]
    num_words: Value[I64]


@dataclass(frozen=True, slots=True)
class Scratch:
    """A worker's workspace: unpacked weights, factors of their groups, tiles of sums."""

    unpacked: Array[U32]
    factors: Array[F32]
    tiles: Array[F32]

    @staticmethod
    def of_worker(workspace: Array[U8], workspace_bytes: Value[I64]) -> Scratch:
        """The part of `workspace` that belongs to the running worker."""
        base = workspace + worker().index * workspace_bytes
        factors = base + _UNPACKED_BYTES
        tiles = factors + _FACTORS_BYTES
        return Scratch(base.view(U32), factors.view(F32), tiles.view(F32))


class Weights(Protocol):
    """One format's weights and the activations' scales, where the format has any."""

    @property
    def steps(self) -> int:
        """Activation words that one packed word meets."""
        ...

    @property
    def gemv_words(self) -> int:
        """Packed words that the GEMV forms take at a time."""
        ...

    def add_packed(
        self,
        tile: Tile,
        block: Block,
        activations: ActivationRows,
        rows: Sequence[Value[I64]],
        prefetch: Prefetch,
    ) -> None:
        """Add a block to the tile's sums straight from the packed words."""
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
    """Where sums go, and what is added to them once at the end: bias, then residual."""

    out: Array[F32]
    out_stride: Value[I64]
    bias: Array[F32] | None
    residual: Array[F32] | None
    residual_stride: Value[I64]

    @staticmethod
    def of(
        out: Array[F32],
        out_stride: Value[I64],
        bias: Array[F32],
        residual: Array[F32],
        residual_stride: Value[I64],
        has_bias: bool,
        has_residual: bool,
    ) -> Destination:
        """The destination that a kernel's operands and constants describe."""
        return Destination(
            out,
            out_stride,
            bias if has_bias else None,
            residual if has_residual else None,
            residual_stride,
        )

    def finish(self, row: Value[I64], panel: Value[I64], total: Value[F32]) -> None:
        """Write one row of a panel's columns."""
        column = panel * VECTOR_LANES
        if self.bias is not None:
            total = total + self.bias.vector(column)
        if self.residual is not None:
            total = total + self.residual.vector(row * self.residual_stride + column)
        self.out[VectorIndex(row * self.out_stride + column)] = total

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
    tile_rows: int


def own_copy(array: Array[D], num_rows: Value[I64], copy_bytes: Value[I64]) -> Array[D]:
    """This worker's copy of what `prepare` wrote: copies exist only for few rows."""
    skipped = select(num_rows <= REDUNDANT_ROWS, worker().index * copy_bytes, index(0))
    return (array.view(U8) + skipped).view(array.dtype)


def padded_steps(in_features: Value[I64], elements_per_step: int) -> Value[I64]:
    """Words of a prepared row."""
    padded = (in_features + (K_ALIGNMENT - 1)) // K_ALIGNMENT * K_ALIGNMENT
    return padded // elements_per_step


def multiply(product: Product, weights: Weights) -> None:
    """Run the product in the form that its number of rows asks for."""
    num_rows = product.num_rows
    for rows in range(1, REDUNDANT_ROWS + 1):
        with when(num_rows.equals(rows)):
            _gemv(product, weights, rows)
    with when((num_rows > REDUNDANT_ROWS) & (num_rows <= GEMV_ROWS)):
        _gemv(product, weights, GEMV_ROWS)
    with when(num_rows > GEMV_ROWS):
        _gemm(product, weights)


def _claimed_panels(product: Product) -> Iterator[Value[I64]]:
    """Panels, several neighbours at a time, so that each worker reads long streams."""
    total = product.num_panels
    chunk = maximum(total // (worker().count * _UNITS_PER_WORKER), 1)
    for unit in claimed(product.counter, (total + chunk - 1) // chunk):
        yield from loop(unit * chunk, minimum((unit + 1) * chunk, total))


def _gemv(product: Product, weights: Weights, rows: int) -> None:
    """Up to `rows` rows; those beyond the last repeat it and are not written."""
    indices = [minimum(index(row), product.num_rows - 1) for row in range(rows)]
    starts = [product.activations + row * product.row_steps for row in indices]
    activations = ActivationRows(starts, 1)
    at_once = rows_per_pass(current().isa)
    firsts = range(0, rows, at_once)
    tile = Tile.at(product.scratch.tiles, rows)
    for panel in _claimed_panels(product):
        tile.clear()
        for first_word in loop(0, product.num_words, weights.gemv_words):
            num_words = minimum(product.num_words - first_word, weights.gemv_words)
            block = Block(panel, first_word, num_words)
            here = activations.after(first_word * weights.steps)
            for turn, first in enumerate(firsts):
                sums, part = tile.part(first, at_once), here.part(first, at_once)
                numbers = indices[first : first + at_once]
                prefetch = Prefetch(turn, len(firsts), _PREFETCH_BYTES)
                weights.add_packed(sums, block, part, numbers, prefetch)
        for row in range(rows):
            with when(index(row) < product.num_rows):
                product.destination.finish(index(row), panel, tile[row])


def _gemm(product: Product, weights: Weights) -> None:
    """Row blocks outermost: their activations stay in L2 while the panels pass."""
    tile_rows = product.tile_rows
    num_strips = (product.num_rows + tile_rows - 1) // tile_rows
    most = _ROW_BLOCK // tile_rows
    num_blocks = (num_strips + most - 1) // most
    for unit in claimed(product.counter, num_blocks * product.num_panels):
        row_block, panel = unit // product.num_panels, unit % product.num_panels
        first = row_block * num_strips // num_blocks
        last = (row_block + 1) * num_strips // num_blocks
        _row_block(product, weights, panel, first, last)


def _row_block(
    product: Product,
    weights: Weights,
    panel: Value[I64],
    first_strip: Value[I64],
    last_strip: Value[I64],
) -> None:
    tile_rows, scratch = product.tile_rows, product.scratch
    block_words = BLOCK_STEPS // weights.steps
    for first_word in loop(0, product.num_words, block_words):
        num_words = minimum(product.num_words - first_word, block_words)
        block = Block(panel, first_word, num_words)
        unpacked = weights.unpack(block, scratch)
        is_last = first_word + block_words >= product.num_words
        for strip in loop(first_strip, last_strip):
            first_row = strip * tile_rows
            sums = scratch.tiles + (strip - first_strip) * (tile_rows * VECTOR_LANES)
            tile = Tile.at(sums, tile_rows)
            with when(first_word.equals(0)):
                tile.clear()
            with when(is_last):
                for row in range(tile_rows):
                    product.destination.prefetch(first_row + row, panel)
            step = strip * product.row_steps + first_word * weights.steps
            words = product.activations + step * tile_rows
            rows = [minimum(first_row + row, product.num_rows - 1) for row in range(tile_rows)]
            activations = ActivationRows.strip(words, tile_rows)
            weights.add_unpacked(tile, block, unpacked, scratch, activations, rows)
            with when(is_last):
                for row in loop(0, minimum(product.num_rows - first_row, tile_rows)):
                    total = sums.vector(row * VECTOR_LANES)
                    product.destination.finish(first_row + row, panel, total)
