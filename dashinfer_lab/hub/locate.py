"""What a user calls MODEL, as a path on this machine; opens nothing."""

from __future__ import annotations

import os
from pathlib import Path

from dashinfer_lab.errors import HubError
from dashinfer_lab.hub.embedded import EMBEDDED_MODELS, Progress, fetch_embedded

__all__ = ["resolve"]

_MARKS = ("*.dimodel", "config.json", "*.safetensors", "*.gguf", "*.bin")


def resolve(model: str | Path, progress: Progress | None = None) -> Path:
    """Return the converted model, checkpoint directory or GGUF file that `model` names.

    An embedded model is fetched if need be, with `progress` told. What is on disk comes first.
    Raises HubError.
    """
    text = os.fspath(model)
    path = Path(text).expanduser()
    try:
        if text and path.is_file():
            return path
        is_directory = bool(text) and path.is_dir()
    except (OSError, ValueError) as error:
        raise HubError(f"{text!r:.200} is no model: {error}") from error
    if is_directory and any(True for mark in _MARKS for _ in path.glob(mark)):
        return path
    if text in EMBEDDED_MODELS:
        return fetch_embedded(text, progress)
    if is_directory:
        raise HubError(
            f"{path} holds no model: neither a converted one (.dimodel) nor config.json with "
            "safetensors files nor a GGUF file"
        )
    raise HubError(
        f"no model {text!r}: give the directory of a checkpoint (config.json and safetensors "
        "files) or of a converted model, a GGUF file, or an embedded model's name "
        f"({', '.join(EMBEDDED_MODELS)}). Ids of a hub are not looked up: download the model first."
    )
