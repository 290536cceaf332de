"""What a graph says about its weights: names, shapes and formats; knows nothing of their bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.quantize import (
    GROUPED_BITS,
    GroupSize,
    WeightFormat,
    WeightRole,
    group_shape,
    panel_shape,
    whole_panels,
)

__all__ = ["ExpertRows", "FusedRows", "StoredTensor", "WeightDeclaration", "expert_matrices"]


@dataclass(frozen=True, slots=True)
class FusedRows:
    """The rows of a checkpoint's tensor that are one weight: `count` of every `period` rows.

    The tensor is called `name` and has `total` rows; the first taken is row `first`.
    """

    name: str
    total: int
    first: int
    count: int
    period: int


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """The spellings that checkpoints have for the matrices [N, K] of a weight of experts.

    each: a tensor for every expert, {} in its name standing for its number.  stacked: some rows of
    every expert's slice of one tensor [E, rows, K], as transformers 5 holds it in memory.
    """

    each: str
    stacked: FusedRows


def expert_matrices(
    name: str, parts: tuple[str, str, str], hidden: int, inner: int
) -> list[tuple[str, tuple[int, int], ExpertRows]]:
    """Gate, up and down of experts that are called `name`: weight, shape [N, K], spellings."""
    both, down = f"{name}.gate_up_proj", f"{name}.down_proj"
    into, back = (inner, hidden), (hidden, inner)
    stacked = [
        (into, FusedRows(both, 2 * inner, 0, inner, 2 * inner)),
        (into, FusedRows(both, 2 * inner, inner, inner, 2 * inner)),
        (back, FusedRows(down, hidden, 0, hidden, hidden)),
    ]
    return [
        (f"{name}.{part}.weight", shape, ExpertRows(f"{name}.{{}}.{part}.weight", rows))
        for part, (shape, rows) in zip(parts, stacked, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in the weights file: `dtype` as safetensors spells it, bytes from 0."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class WeightDeclaration:
    """A weight a model asks for: the checkpoint's name and shape, and the format to store.

    A matrix has shape [N, K], K its in features, and is stored as panels. The matrices of E
    experts are one weight [E, N, K], the panels of one expert after those of the other.
    """

    name: str
    shape: tuple[int, ...]
    role: WeightRole
    format: WeightFormat
    group_size: GroupSize
    fused: FusedRows | None = None
    """Where it lies in the checkpoint, if not in a tensor of its own name and shape."""
    head_order: tuple[int, ...] = ()
    """Row i of every head is row head_order[i] of it in the checkpoint; empty: as they are."""
    offset: float = 0.0
    """What is added to every element of a vector."""
    unit_rows: bool = False
    """Whether every row of a matrix is divided by its length."""
    experts: ExpertRows | None = None
    """Where the matrices of experts lie in the checkpoint."""

    @property
    def checkpoint_name(self) -> str:
        """The checkpoint's tensor that holds it."""
        return self.fused.name if self.fused else self.name

    @property
    def checkpoint_shape(self) -> tuple[int, ...]:
        """Shape of that tensor."""
        return (self.fused.total, *self.shape[1:]) if self.fused else self.shape

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """Which rows of that tensor its rows [start, stop) are."""
        rows = np.arange(start, stop, dtype=np.int64)
        if self.head_order:
            head, within = np.divmod(rows, len(self.head_order))
            rows = head * len(self.head_order) + np.array(self.head_order, np.int64)[within]
        if self.fused:
            group, within = np.divmod(rows, self.fused.count)
            rows = group * self.fused.period + self.fused.first + within
        return rows

    @property
    def is_matrix(self) -> bool:
        """Whether the weight is stored as panels."""
        return len(self.shape) > 1

    @property
    def num_columns(self) -> int:
        """Columns of the stored weight: N, or those of every expert's whole panels."""
        *experts, n, _ = self.shape
        return experts[0] * whole_panels(n) if experts else n

    def expert(self, number: int, *, stacked: bool) -> WeightDeclaration:
        """One expert's matrix, as the checkpoint spells it."""
        assert self.experts is not None
        name, fused = self.experts.each.format(number), self.experts.stacked if stacked else None
        return replace(self, name=name, shape=self.shape[1:], fused=fused, experts=None)

    @property
    def num_elements(self) -> int:
        """Count the weight's parameters."""
        return prod(self.shape)

    def stored_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that holds this weight, panels first."""
        if not self.is_matrix:
            return {self.name: self.shape}
        n, k = self.num_columns, self.shape[-1]
        shapes = {self.name: panel_shape(n, k, self.format)}
        if self.format in GROUPED_BITS:
            shapes[f"{self.name}.scale"] = group_shape(n, k, self.group_size)
            shapes[f"{self.name}.minimum"] = group_shape(n, k, self.group_size)
        return shapes
