"""Gated units: y = activation(gate) · up, row by row, prepared for a linear   (Shazeer 2020).

What SwiGLU and GeGLU share; knows no activation.
"""

from __future__ import annotations

from typing import NamedTuple

from jit_kernels.dsl import Array, Value
from jit_kernels.kernels.activations import Activation
from jit_kernels.kernels.prepare import PreparedRows, Values, prepare_rows
from jit_kernels.types import F32, I64

__all__ = ["GatedOperands"]


class GatedOperands(NamedTuple):
    """Rows [R, n] of gate and of up, both with the same `stride`.

    `by_product`: what the product that makes both does, too, where rows lie in strips: nothing, or
    "units", which it writes where the gate would be, or "rows", which it prepares as well.
    """

    rows: Array[I64]
    gate: Array[F32]
    up: Array[F32]
    stride: Value[I64]
    n: Value[I64]

    def prepare(self, target: PreparedRows, activation: Activation, *, by_product: str) -> None:
        """Write activation(gate) · up as prepared rows."""

        def row_of(row: Value[I64]) -> Values:
            gates, ups = self.gate + row * self.stride, self.up + row * self.stride
            return lambda k: activation(gates[k]) * ups[k]

        def ready(row: Value[I64]) -> Values:
            units = self.gate + row * self.stride
            return lambda k: units[k]

        of_many = ready if by_product == "units" else "done" if by_product == "rows" else None
        prepare_rows(target, self.rows[0], self.n, row_of, of_many=of_many)
