"""The model as every engine's converter takes it: config.json and safetensors in float32."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from dashinfer_lab.hub import open_checkpoint, resolve
from dashinfer_lab.hub.files import write_json
from dashinfer_lab.hub.model_config import model_config

__all__ = ["Exported", "exported"]


@dataclass(frozen=True)
class Exported:
    """`source` is what we load, `gguf` the file where it is one, `directory` the others' layout."""

    source: Path
    gguf: Path | None
    directory: Path
    fingerprint: str
    vocab_size: int


def exported(model: str, folder: Path) -> Exported:
    """Write the weights of `model` below `folder`, once."""
    source = resolve(model)
    with open_checkpoint(source) as checkpoint:
        revision = f"{checkpoint.source}\n{checkpoint.revision}"
        fingerprint = hashlib.sha256(revision.encode()).hexdigest()[:12]
        directory = folder / "checkpoints" / fingerprint
        if not (directory / "config.json").is_file():
            directory.mkdir(parents=True, exist_ok=True)
            weights = {
                name: np.asarray(checkpoint.read(name), np.float32) for name in checkpoint.names()
            }
            save_file(weights, directory / "model.safetensors", {"format": "pt"})
            checkpoint.write_tokenizer(directory)
            write_json(directory / "config.json", _for_others(checkpoint.config))
        vocab_size = model_config(checkpoint.config).vocab_size
    gguf = source if source.suffix == ".gguf" else None
    return Exported(source, gguf, directory, fingerprint, vocab_size)


def _for_others(config: Mapping[str, object]) -> dict[str, object]:
    """Name the model's type and heads, say float32, and the rotary base as transformers 4 does."""
    model = model_config(config)
    named = {"model_type": model.model_type, "head_dim": model.head_dim}
    spelled = {**named, **config, "dtype": "float32", "torch_dtype": "float32"}
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        spelled.setdefault("rope_theta", rope["rope_theta"])
    return spelled
