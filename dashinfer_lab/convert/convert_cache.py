"""Converts a model once and remembers where; knows nothing of how conversion works."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import closing
from pathlib import Path

from dashinfer_lab.config import cache_root, expanded
from dashinfer_lab.convert.artifact import Artifact, is_artifact
from dashinfer_lab.convert.converter import conversion_identity, convert
from dashinfer_lab.convert.weight_writer import Progress
from dashinfer_lab.errors import ArtifactError, CheckpointError
from dashinfer_lab.hub import Checkpoint, open_checkpoint
from dashinfer_lab.quantize import Scheme

__all__ = ["converted", "converted_checkpoint"]

_SOURCES = (
    "*.safetensors", "*.gguf", "*.dimodel", "*.ditensors", "*.json", "*.model", "*.jinja",
    "*.tiktoken", "merges.txt",
)  # fmt: skip


def converted(source: Path, scheme: Scheme | str, progress: Progress | None = None) -> Path:
    """Return the directory of the artifact made from the checkpoint at `source` under `scheme`.

    Converts at the first call; later calls, in any process, find it by the files' paths, sizes and
    times of change, the scheme and the tool's version. An artifact's own directory is returned.
    """
    if is_artifact(source):
        return source
    chosen = Scheme.parse(scheme)
    path = expanded(source).resolve()
    is_snapshot = path.parent.name == "snapshots"  # its own name is a revision
    model = path.parent.parent.name if is_snapshot else path.stem
    target = _directory_for(model, str(path), _fingerprint(path), chosen)
    if not _opens(target):
        with closing(open_checkpoint(source)) as checkpoint:
            convert(checkpoint, target, chosen, progress=progress, overwrite=is_artifact(target))
    return target


def converted_checkpoint(
    checkpoint: Checkpoint, scheme: Scheme | str, progress: Progress | None = None
) -> Path:
    """Return the artifact made from an open checkpoint, found again by its revision."""
    chosen, source = Scheme.parse(scheme), checkpoint.source
    target = _directory_for(Path(source).name, source, checkpoint.revision, chosen)
    if not _opens(target):
        convert(checkpoint, target, chosen, progress=progress, overwrite=is_artifact(target))
    return target


def _directory_for(model: str, source: str, revision: str, scheme: Scheme) -> Path:
    """Name the directory after the model, for people, and after all it depends on."""
    key = conversion_identity(source, revision, scheme)
    name = re.sub(r"[^\w.-]+", "_", f"{model}-{scheme}")
    return cache_root() / "conversions" / f"{name}-{key[:12]}"


def _fingerprint(source: Path) -> str:
    """Digest of the path, size and time of change of every file a conversion reads."""
    files = [source]
    if source.is_dir():
        files = sorted(path for pattern in _SOURCES for path in source.glob(pattern))
    digest = hashlib.sha256()
    for path in files:
        try:
            status = path.stat()
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
        digest.update(os.fsencode(path.name))
        digest.update(f" {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _opens(target: Path) -> bool:
    try:
        if not is_artifact(target):
            return False
        Artifact.open(target)
    except ArtifactError:
        return False
    return True
