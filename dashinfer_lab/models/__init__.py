"""Model architectures, one file a `model_type`; each declares an ONNX graph and nothing else."""

from dashinfer_lab.models.registry import (
    ModelFunction,
    build_graph,
    register,
    supported_models,
)

__all__ = ["ModelFunction", "build_graph", "register", "supported_models"]
