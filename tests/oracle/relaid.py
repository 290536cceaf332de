"""Writes a checkpoint laid out anew, for transformers to open."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

__all__ = ["written"]


def written(config: object, tensors: dict[str, np.ndarray], directory: Path) -> Path:
    """Write config.json and model.safetensors into the new `directory`."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    return directory
