"""Gated units that a product of gates and ups makes itself, where rows lie in strips.

A unit is activation(gate) · up. Units are written as floats, where the gates would be, or prepared
for the product that reads them: then as many panels are taken together as a group of its
activations is wide, and their units never leave the worker that made them. Knows no weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from jit_kernels.activation_layout import MAX_UNIT_COLUMNS
from jit_kernels.dsl import VECTOR_LANES, Array, Value, VectorIndex, when
from jit_kernels.errors import TraceError
from jit_kernels.kernels.activations import ACTIVATIONS, Activation
from jit_kernels.kernels.prepare import PreparedRows, prepare_group
from jit_kernels.types import BOOL, F32, I64

__all__ = ["GatedUnits", "Turn", "gated_units"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Which of the panels that are taken together it is, and whether it is the last one."""

    number: Value[I64]
    is_last: Value[BOOL]


@dataclass(frozen=True, slots=True)
class GatedUnits:
    """How units are made and, where they are `prepared` at once, for whom."""

    activation: Activation
    prepared: PreparedRows | None

    @property
    def num_panels(self) -> int:
        """Panels of gates that are taken together."""
        return 1 if self.prepared is None else self.prepared.group // VECTOR_LANES

    def keep(self, unit: Value[F32], kept: Array[F32], row: Value[I64], turn: Turn) -> None:
        """Put aside the units of one panel's columns of one row of a strip."""
        columns = self.num_panels * VECTOR_LANES
        kept[VectorIndex(row * columns + turn.number * VECTOR_LANES)] = unit

    def prepare(
        self,
        kept: Array[F32],
        strip: Value[I64],
        num_rows: Value[I64],
        n: Value[I64],
        panel: Value[I64],
        turn: Turn,
    ) -> None:
        """Write a group of a strip's `num_rows` rows of `n` units once its last `panel` is kept."""
        assert self.prepared is not None
        with when(turn.is_last):
            prepare_group(self.prepared, kept, strip, num_rows, n, panel // self.num_panels)


def gated_units(gated: str, prepared: PreparedRows | None = None) -> GatedUnits | None:
    """Units of the activation called `gated`, if any; prepared in groups of whole panels."""
    if not gated:
        return None
    if prepared is not None:
        group = prepared.group
        if not 0 < group <= MAX_UNIT_COLUMNS or group % VECTOR_LANES:
            raise TraceError(
                f"units are prepared in groups of whole panels, at most {MAX_UNIT_COLUMNS} columns "
                f"wide, not {group}"
            )
    return GatedUnits(ACTIVATIONS[gated], prepared)
