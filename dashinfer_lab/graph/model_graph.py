"""A finished graph: its ONNX form, and the weights and tables it asks for; holds no weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph.weights import WeightDeclaration
from dashinfer_lab.quantize import Scheme

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ModelGraph"]


@dataclass(frozen=True, slots=True, eq=False)
class ModelGraph:
    """A model's graph under a scheme.

    `weights` are in the order in which the graph uses them; `tables` are tensors that are computed
    rather than read from a checkpoint. The ONNX initialisers have names and shapes but no data.
    """

    ir: ir.Graph
    config: ModelConfig
    scheme: Scheme
    weights: tuple[WeightDeclaration, ...]
    tables: Mapping[str, NDArray[np.float32]]

    @property
    def num_parameters(self) -> int:
        """Count the parameters; a tied embedding counts once."""
        return sum(weight.num_elements for weight in self.weights)

    def __repr__(self) -> str:
        from dashinfer_lab.graph.render import summary

        return summary(self)
