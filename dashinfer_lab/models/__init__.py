"""Model architectures, one file a `model_type`; each declares an ONNX graph and nothing else."""

from dashinfer_lab.models.registry import (
    ModelFunction,
    SupportedModel,
    build_graph,
    describe_models,
    register,
    supported_models,
)

__all__ = [
    "ModelFunction",
    "SupportedModel",
    "build_graph",
    "describe_models",
    "register",
    "supported_models",
]
