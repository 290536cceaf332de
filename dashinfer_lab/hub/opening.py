"""The right reader for a checkpoint on disk; knows no hub."""

from __future__ import annotations

from pathlib import Path

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.checkpoint import Checkpoint
from dashinfer_lab.hub.dashinfer_checkpoint import DashInferCheckpoint, dashinfer_files
from dashinfer_lab.hub.files import confined
from dashinfer_lab.hub.gguf_checkpoint import GgufCheckpoint
from dashinfer_lab.hub.safetensors_checkpoint import SafetensorsCheckpoint
from dashinfer_lab.hub.snapshots import is_unfinished

__all__ = ["open_checkpoint"]


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a GGUF file, or a directory of one, of safetensors files or of DashInfer's two files.

    Raises CheckpointError for what is missing, damaged or a pickle.
    """
    path = Path(path)
    if is_unfinished(path):
        raise CheckpointError(
            f"{path} is left over from a download that did not end. Fetch the model again by its "
            "id: the download goes on from there."
        )
    if path.is_file():
        if path.suffix != ".gguf":
            raise CheckpointError(
                f"{path} is not a GGUF file. Give the directory that holds the model's "
                "config.json and safetensors files. Pickles (.bin, .pt) can run code: load one "
                "that you trust with transformers yourself, and give LLM the model."
            )
        return GgufCheckpoint(path)
    if not path.is_dir():
        raise CheckpointError(f"{path} does not exist")
    gguf_files = sorted(path.glob("*.gguf"))
    if gguf_files and not any(path.glob("*.safetensors*")):
        if len(gguf_files) > 1:
            listed = ", ".join(file.name for file in gguf_files)
            raise CheckpointError(f"{path} holds several GGUF files: {listed}. Name one of them.")
        confined(path, gguf_files[0].name)
        return GgufCheckpoint(gguf_files[0])
    has_safetensors = any(path.glob("*.safetensors*"))
    dashinfer = None if has_safetensors else dashinfer_files(path)
    if dashinfer is not None:
        return DashInferCheckpoint(path, dashinfer)
    return SafetensorsCheckpoint(path)
