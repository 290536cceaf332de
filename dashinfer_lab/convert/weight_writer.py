"""Streams a checkpoint's weights into a container, region by region, with bounded memory.

Regions: the panels in graph order, then all scales, all minimums, and the vectors, so that weights
declared one after another are neighbours and can be used as one. Knows nothing of directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.convert.container import ContainerWriter
from dashinfer_lab.convert.matching import Piece, row_blocks
from dashinfer_lab.convert.packing import as_float32, pack_block, require_finite
from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.graph import ModelGraph, WeightDeclaration
from dashinfer_lab.hub.checkpoint import Checkpoint
from dashinfer_lab.quantize import GROUPED_BITS, ScaleType
from jit_kernels.panels import PANEL_WIDTH

__all__ = ["ConversionProgress", "Progress", "WeightWriter"]

_STORED: Final = {"f32": "F32", "bf16": "BF16", "u8": "U8", "u4": "U8"}
_SCALE_TYPES: Final[tuple[tuple[ScaleType, str], ...]] = ((np.float16, "F16"), (np.float32, "F32"))
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ConversionProgress:
    """How far a conversion is, in parameters, `seconds` after its first weight was begun."""

    weight: str
    done: int
    total: int
    seconds: float

    @property
    def parameters_per_second(self) -> float | None:
        """Mean rate so far; None before any time has passed."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def remaining_seconds(self) -> float | None:
        """Time that the rest takes at this rate; None where the rate is not known."""
        rate = self.parameters_per_second
        return None if rate is None else (self.total - self.done) / rate


Progress = Callable[[ConversionProgress], None]


@dataclass(slots=True)
class WeightWriter:
    """Writes every weight of a graph, read from `checkpoint` as its `pieces` say.

    `spools` are scratch files for scales and minimums, whose regions come after the panels.
    `clock` tells seconds, for `progress` alone.
    """

    checkpoint: Checkpoint
    pieces: Mapping[str, tuple[Piece, ...]]
    container: ContainerWriter
    spools: tuple[BinaryIO, BinaryIO]
    workers: Executor
    progress: Progress | None
    clock: Callable[[], float]
    done: int = 0
    begin_seconds: float = 0.0
    slice_of: tuple[tuple[str, int], NDArray[Any]] | None = None
    """The expert's slice of a stacked tensor that was read last."""

    def write(self, graph: ModelGraph) -> None:
        """Write all regions.

        Raises ConversionError for weights that are not finite, CheckpointError for short reads.
        """
        self.begin_seconds = self.clock()
        matrices = [weight for weight in graph.weights if weight.is_matrix]
        group_types = {
            weight.name: self._write_panels(weight, graph.num_parameters) for weight in matrices
        }
        for spool, part in zip(self.spools, ("scale", "minimum"), strict=True):
            spool.seek(0)
            for weight in matrices:
                if weight.format in GROUPED_BITS:
                    self._write_groups(weight, part, group_types[weight.name], spool)
        for weight in graph.weights:
            if not weight.is_matrix:
                (piece,) = self.pieces[weight.name]
                values = as_float32(self._read(piece, slice(0, weight.shape[0])))
                require_finite(weight.name, values)
                if weight.offset:
                    values = values + np.float32(weight.offset)
                self.container.append(weight.name, "F32", weight.shape, [values])

    def _write_panels(self, weight: WeightDeclaration, total: int) -> str:
        """Write the panels, spool scale and minimum, and return the type these have."""
        shape = weight.stored_shapes()[weight.name]
        marks = [spool.tell() for spool in self.spools]
        for scale_type, stored_type in _SCALE_TYPES:
            blocks = self._panel_blocks(weight, scale_type, total)
            if self.container.append(weight.name, _STORED[weight.format], shape, blocks):
                self.done += weight.num_elements
                return stored_type
            for spool, mark in zip(self.spools, marks, strict=True):
                spool.seek(mark)
                spool.truncate()
        raise AssertionError("float32 scales are never too coarse")

    def _panel_blocks(
        self, weight: WeightDeclaration, scale_type: ScaleType, total: int
    ) -> Iterator[NDArray[Any]]:
        """Yield panels; end early where `scale_type` turns out too coarse.

        Workers read what they pack, which then lies in their caches; one at a time, for a
        checkpoint need not bear two.
        """
        done = self.done
        for piece in self.pieces[weight.name]:
            for rows in row_blocks(piece.weight.shape, PANEL_WIDTH):
                packed = pack_block(
                    piece.weight, self._reader(piece), rows, scale_type, self.workers
                )
                if packed is None:
                    return
                for block in packed:
                    for spool, groups in zip(self.spools, block[1:], strict=True):
                        if groups is not None:
                            spool.write(groups.data)
                    yield block.panels
                done += (rows.stop - rows.start) * piece.weight.shape[1]
                if self.progress is not None:
                    seconds = self.clock() - self.begin_seconds
                    self.progress(ConversionProgress(piece.weight.name, done, total, seconds))

    def _reader(self, piece: Piece) -> Callable[[slice], NDArray[Any]]:
        """Read rows of one piece, one caller at a time."""
        lock = Lock()

        def read(rows: slice) -> NDArray[Any]:
            with lock:
                return self._read(piece, rows)

        return read

    def _write_groups(
        self, weight: WeightDeclaration, part: str, stored_type: str, spool: BinaryIO
    ) -> None:
        name = f"{weight.name}.{part}"
        shape = weight.stored_shapes()[name]
        num_bytes = prod(shape) * (2 if stored_type == "F16" else 4)

        def blocks() -> Iterator[NDArray[np.uint8]]:
            for start in range(0, num_bytes, _COPY_BYTES):
                size = min(_COPY_BYTES, num_bytes - start)
                yield np.frombuffer(spool.read(size), np.uint8)

        self.container.append(name, stored_type, shape, blocks())

    def _read(self, piece: Piece, rows: slice) -> NDArray[Any]:
        """Read some rows of a weight; those that lie side by side in the checkpoint at once."""
        at = piece.weight.rows(rows.start, rows.stop)
        order = np.argsort(at, kind="stable")
        ordered = at[order]
        # A row read in vain costs less than one more read.
        runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 2) + 1)
        values = np.concatenate([self._span(piece, run) for run in runs])
        return values if len(runs) == 1 and (at == ordered).all() else values[np.argsort(order)]

    def _span(self, piece: Piece, run: NDArray[np.int64]) -> NDArray[Any]:
        """Read the rows `run`, ascending, of a weight's tensor."""
        first, stop = int(run[0]), int(run[-1]) + 1
        values = self._rows(piece, slice(first, stop))
        expected = (stop - first, *piece.weight.shape[1:])
        if values.shape != expected:
            raise CheckpointError(
                f"{self.checkpoint.source}: rows {first} to {stop} of "
                f"{piece.weight.checkpoint_name!r} have shape {list(values.shape)}, expected "
                f"{list(expected)}; fetch it again"
            )
        return values if len(values) == len(run) else values[run - first]

    def _rows(self, piece: Piece, rows: slice) -> NDArray[Any]:
        """Read rows of a tensor or, of stacked experts, of one expert's slice, read whole."""
        tensor = str(piece.tensor)
        if piece.expert is None:
            return self.checkpoint.read(tensor, rows)
        if self.slice_of is None or self.slice_of[0] != (tensor, piece.expert):
            whole = self.checkpoint.read(tensor, slice(piece.expert, piece.expert + 1))
            self.slice_of = ((tensor, piece.expert), whole[0])
        return self.slice_of[1][rows]
