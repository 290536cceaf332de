"""A converted Llama of random weights, small enough to run in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.convert import Artifact
from dashinfer_lab.convert.converter import convert
from dashinfer_lab.quantize import Scheme
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config

__all__ = ["tiny_artifact", "tiny_llama"]


def tiny_llama(**changes: Any) -> ModelConfig:
    """Two layers with three queries a key; no width but the head's is a multiple of a vector."""
    sizes: dict[str, Any] = {
        "vocab_size": 331,
        "hidden_size": 84,
        "intermediate_size": 150,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 16,
        "context_length": 512,
    }
    return tiny_config(**{**sizes, **changes})


def tiny_artifact(directory: Path, scheme: str, config: ModelConfig | None = None) -> Artifact:
    """Convert a tiny Llama into `directory`; it has no tokenizer."""
    convert(tiny_checkpoint(config or tiny_llama()), directory, Scheme.parse(scheme))
    (directory / "tokenizer.json").unlink()
    return Artifact.open(directory)
