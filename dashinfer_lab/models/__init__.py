"""Model architectures, one file a `model_type`; each declares an ONNX graph and nothing else."""

from dashinfer_lab.hub.families import Family
from dashinfer_lab.models.registry import (
    ModelFunction,
    SupportedModel,
    build_graph,
    describe_models,
    register,
    require_supported,
    supported_models,
)
from dashinfer_lab.models.support import FORMATS, ISAS, Cell, formats_of, supported_cells

__all__ = [
    "FORMATS",
    "ISAS",
    "Cell",
    "Family",
    "ModelFunction",
    "SupportedModel",
    "build_graph",
    "describe_models",
    "formats_of",
    "register",
    "require_supported",
    "supported_cells",
    "supported_models",
]
