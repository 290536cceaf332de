"""Checkpoint to artifact and back from disk; knows nothing of how a model runs."""

from dashinfer_lab.convert.artifact import Artifact, is_artifact
from dashinfer_lab.convert.convert_cache import converted
from dashinfer_lab.convert.converter import convert
from dashinfer_lab.convert.weight_writer import ConversionProgress, Progress

__all__ = [
    "Artifact",
    "ConversionProgress",
    "Progress",
    "convert",
    "converted",
    "is_artifact",
]
