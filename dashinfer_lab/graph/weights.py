"""What a graph says about its weights: names, shapes and formats; knows nothing of their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dashinfer_lab.quantize import GroupSize, WeightFormat, WeightRole, group_shape, panel_shape

__all__ = ["StoredTensor", "WeightDeclaration"]


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

    A matrix has shape [N, K], K its in features, and is stored as panels.
    """

    name: str
    shape: tuple[int, ...]
    role: WeightRole
    format: WeightFormat
    group_size: GroupSize

    @property
    def is_matrix(self) -> bool:
        """Whether the weight is stored as panels."""
        return len(self.shape) == 2

    @property
    def num_elements(self) -> int:
        """Count the weight's parameters."""
        return prod(self.shape)

    def stored_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that holds this weight, panels first."""
        if not self.is_matrix:
            return {self.name: self.shape}
        n, k = self.shape
        shapes = {self.name: panel_shape(n, k, self.format)}
        if self.format == "u8":
            shapes[f"{self.name}.scale"] = group_shape(n, k, self.group_size)
            shapes[f"{self.name}.minimum"] = group_shape(n, k, self.group_size)
        return shapes
