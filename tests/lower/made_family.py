"""A family that a test describes, converted with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.convert import Artifact, convert
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.hub import families, model_config
from dashinfer_lab.models import Family, build_graph, register, registry
from dashinfer_lab.quantize import Scheme
from tests.convert.memory_checkpoint import MemoryCheckpoint

__all__ = ["converted"]


def converted(
    build: Callable[[GraphBuilder, ModelConfig], Value],
    config: Mapping[str, Any],
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Artifact:
    """Register `build` as the first of the config's architectures while the test runs; convert."""
    (architecture,) = config["architectures"]
    monkeypatch.setattr(families, "_added", {})
    monkeypatch.setattr(registry, "_MODELS", dict(registry._MODELS))
    register(Family(build.__name__, architecture))(build)
    rng = np.random.default_rng(3)
    weights = build_graph(model_config(config), Scheme.parse("fp32")).weights
    tensors = {
        each.name: (rng.standard_normal(each.shape) / each.shape[-1] ** 0.5).astype(np.float32)
        for each in weights
    }
    artifact = convert(MemoryCheckpoint(dict(config), tensors), directory, "fp32")
    (artifact.directory / "tokenizer.json").unlink()
    return artifact
