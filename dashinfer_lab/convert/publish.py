"""Decides whether a conversion may, or need, write its target; knows nothing of weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dashinfer_lab.config import expanded
from dashinfer_lab.convert.artifact import Artifact, is_artifact
from dashinfer_lab.convert.staging import ELSEWHERE, remove_stale, staging_directory
from dashinfer_lab.errors import ArtifactError, ConversionError

__all__ = ["published"]


def published(
    directory: Path, identity: str, write: Callable[[Path], None], *, overwrite: bool = False
) -> Artifact:
    """Return the artifact in `directory`, written by `write` unless it is there already.

    Raises ConversionError where `directory` holds something else, which is then left alone:
    `overwrite` replaces artifacts only.
    """
    target = Path(os.path.realpath(expanded(directory)))
    _require_text(target)
    existing = _complete(target, identity)
    if existing is not None and not overwrite:
        return existing
    try:
        _require_replaceable(target, overwrite=overwrite)
        remove_stale(target)
        with staging_directory(target, replace=overwrite) as staging:
            write(staging)
    except OSError as error:
        winner = _complete(target, identity)
        if winner is not None:  # another process made the same conversion meanwhile
            return winner
        raise ConversionError(
            f"writing {target} failed: {error.strerror or error}; {ELSEWHERE}"
        ) from error
    return Artifact.open(target)


def _complete(target: Path, identity: str) -> Artifact | None:
    try:
        artifact = Artifact.open(target) if is_artifact(target) else None
    except ArtifactError:
        return None
    if artifact is None:
        return None
    return artifact if artifact.identity == identity else None


def _require_text(target: Path) -> None:
    """Refuse a name of bytes that are no text, which ONNX could not open."""
    try:
        str(target).encode()
    except UnicodeEncodeError as error:
        raise ConversionError(
            f"{str(target)!a} is not valid Unicode text; choose another directory"
        ) from error


def _require_replaceable(target: Path, *, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not is_artifact(target):
        raise ConversionError(
            f"{target} exists and is not a converted model; choose another directory"
        )
    if not overwrite:
        raise ConversionError(
            f"{target} holds another conversion{_named(target)}; choose another directory, or "
            "replace it with --overwrite (in Python overwrite=True)"
        )


def _named(target: Path) -> str:
    """Say what the artifact in `target` was made of; nothing of one that does not open."""
    try:
        metadata = Artifact.open(target).metadata
    except ArtifactError:
        return ""
    made_of = f"{metadata['source']:.100} as {metadata['scheme']}"
    return (
        f", of {made_of} by version {metadata['tool_version']}, format {metadata['format_version']}"
    )
