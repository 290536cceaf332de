"""Find a model's files and read them as a checkpoint; knows nothing of graphs or kernels."""

from __future__ import annotations

from dashinfer_lab.hub.checkpoint import Checkpoint
from dashinfer_lab.hub.gguf_checkpoint import GgufCheckpoint
from dashinfer_lab.hub.locate import resolve
from dashinfer_lab.hub.model_config import model_config
from dashinfer_lab.hub.opening import open_checkpoint
from dashinfer_lab.hub.safetensors_checkpoint import SafetensorsCheckpoint
from dashinfer_lab.hub.transformers_checkpoint import TransformersCheckpoint

__all__ = [
    "Checkpoint",
    "GgufCheckpoint",
    "SafetensorsCheckpoint",
    "TransformersCheckpoint",
    "model_config",
    "open_checkpoint",
    "resolve",
]
