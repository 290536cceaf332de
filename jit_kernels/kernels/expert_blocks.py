"""The product of rows with the weights of their own experts; only experts that are met are read.

Experts' panels lie one expert after the other. A unit of work is one panel of one active expert;
the rows that met it share a decoding, some at a time. Each output element is computed as `linear`
computes it, so that a row's bits depend on nothing but the row and the expert. Knows no format.
"""

from __future__ import annotations

from dataclasses import dataclass

from jit_kernels.dsl import Array, Value, if_else, index, loop, minimum, when
from jit_kernels.dsl.trace import current
from jit_kernels.kernels.linear_blocks import claimed_runs
from jit_kernels.kernels.linear_operands import Product, Weights
from jit_kernels.kernels.linear_tiles import (
    PREFETCH_BYTES,
    ActivationRows,
    Prefetch,
    Tile,
    rows_in_registers,
    rows_per_pass,
)
from jit_kernels.kernels.route import EXPERT_WORDS
from jit_kernels.types import I32, I64

__all__ = ["ExpertRows", "multiply_experts"]


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """Pairs sorted by expert, as `group_rows` leaves them.

    Pair s reads row `token_rows[s]` of the activations, or row s where there are none.
    """

    num_active: Value[I64]
    experts: Array[I64]
    token_rows: Array[I32] | None

    def source(self, slot: Value[I64]) -> Value[I64]:
        """The row of activations of a sorted pair."""
        return slot if self.token_rows is None else self.token_rows[slot].to(I64)


@dataclass(frozen=True, slots=True)
class _Unit:
    """One panel of one expert, and the pairs that meet it."""

    stacked_panel: Value[I64]
    panel: Value[I64]
    first: Value[I64]
    count: Value[I64]


def multiply_experts(product: Product, weights: Weights, pairs: ExpertRows) -> None:
    """Write row s of the destination for every pair s; `num_panels` are those of one expert."""
    most = rows_per_pass(current().isa)
    per_expert = product.num_panels
    total, shared_from = pairs.num_active * per_expert, product.schedule.shared_from
    for begin, end in claimed_runs(product.counter, total, shared_from):
        for number in loop(begin, end):
            word = number // per_expert * EXPERT_WORDS
            expert, first, count = (pairs.experts[word + k] for k in range(EXPERT_WORDS))
            panel = number % per_expert
            unit = _Unit(expert * per_expert + panel, panel, first, count)
            for alone in if_else(count.equals(1)):
                if alone:
                    _multiply(product, weights, pairs, unit, index(0), 1)
                else:
                    for done in loop(0, count, most):
                        for many in if_else(count - done > most // 2):
                            rows = most if many else most // 2
                            _multiply(product, weights, pairs, unit, done, rows)


def _multiply(
    product: Product,
    weights: Weights,
    pairs: ExpertRows,
    unit: _Unit,
    done: Value[I64],
    rows: int,
) -> None:
    """Up to `rows` pairs after the first `done`; those beyond the last repeat it, unwritten."""
    slots = [unit.first + minimum(done + row, unit.count - 1) for row in range(rows)]
    sources = [pairs.source(slot) for slot in slots]
    starts = [product.activations + source * product.row_steps for source in sources]
    in_registers = rows <= rows_in_registers(current().isa)
    tile = Tile.in_registers(rows) if in_registers else Tile.in_memory(product.scratch.tiles, rows)
    tile.clear()
    alone, several = Prefetch.for_one(weights.arithmetic), Prefetch.for_several(PREFETCH_BYTES)
    prefetch = alone if rows == 1 else several
    activations, panels = ActivationRows(starts, 1), [unit.stacked_panel]
    for piece in weights.pieces():
        weights.add_packed([tile], panels, piece, activations, sources, prefetch)
    for row, slot in enumerate(slots):
        with when(done + row < unit.count):
            product.destination.finish(slot, unit.panel, tile[row])
