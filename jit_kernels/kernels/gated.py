"""Gated units: y = activation(gate) · up, row by row, prepared for a linear   (Shazeer 2020).

What SwiGLU and GeGLU share; knows no activation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jit_kernels.dsl import Array, Value
from jit_kernels.kernels.prepare import PreparedRows, Values, prepare_rows
from jit_kernels.types import F32, I64

__all__ = ["GatedOperands"]


class GatedOperands(NamedTuple):
    """Rows [R, n] of gate and of up, both with the same `stride`."""

    rows: Array[I64]
    gate: Array[F32]
    up: Array[F32]
    stride: Value[I64]
    n: Value[I64]

    def prepare(self, target: PreparedRows, activation: Callable[[Value[F32]], Value[F32]]) -> None:
        """Write activation(gate) · up as prepared rows."""

        def row_of(row: Value[I64]) -> Values:
            gates, ups = self.gate + row * self.stride, self.up + row * self.stride
            return lambda k: activation(gates[k]) * ups[k]

        prepare_rows(target, self.rows[0], self.n, row_of)
