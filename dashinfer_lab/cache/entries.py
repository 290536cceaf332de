"""The cache as a list: fetched models and conversions by name, all kinds by size; removes nothing.

Kinds are directories of the cache's root. Figures that were measured lie beside them, in roof.json
and baselines.json, and belong to no kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dashinfer_lab.config import cache_root
from dashinfer_lab.convert.artifact import WEIGHTS_FILE, is_artifact
from dashinfer_lab.convert.container import read_container
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.hub.embedded import EMBEDDED_MODELS
from dashinfer_lab.hub.locate import cached_snapshots

__all__ = ["KINDS", "CacheEntry", "Usage", "list_entries", "usage"]

KINDS: Final = {
    "models": "fetched models",
    "conversions": "converted models",
    "objects": "compiled kernels",
    "lowered": "lowered programs",
    "schedules": "measured schedules",
    "gradio": "files of the demo",
}
"""Directories of the cache, and what each holds."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A model in the cache. `last_used` is a time as the file system knows it, in seconds."""

    name: str
    kind: str
    path: Path
    num_bytes: int
    source: str
    scheme: str | None
    last_used: float

    def as_dict(self) -> dict[str, object]:
        """Names and values, for `--json`."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kind takes."""

    kind: str
    num_bytes: int
    num_files: int


def list_entries() -> list[CacheEntry]:
    """Return every complete model of the cache: fetched ones first, each by name."""
    return [*_fetched(), *_converted()]


def usage() -> list[Usage]:
    """Return the size of every kind, unfinished files included."""
    sizes = {kind: _sizes(cache_root() / kind) for kind in KINDS}
    return [Usage(kind, sum(found), len(found)) for kind, found in sizes.items()]


def _fetched() -> Iterator[CacheEntry]:
    for name, model in EMBEDDED_MODELS.items():
        path = cache_root() / "models" / name / model.file_name
        if path.is_file():
            yield _entry(name, "models", path.parent, model.requirement, None)
    for name, directory in cached_snapshots():
        yield _entry(name, "models", directory, name, None)


def _converted() -> Iterator[CacheEntry]:
    for directory in sorted((cache_root() / "conversions").glob("[!.]*")):
        try:
            if not is_artifact(directory):
                continue
            metadata = read_container(directory / WEIGHTS_FILE).metadata
        except ArtifactError:
            metadata = {"source": "damaged"}
        source, scheme = metadata.get("source", ""), metadata.get("scheme")
        yield _entry(directory.name, "conversions", directory, source, scheme)


def _entry(name: str, kind: str, directory: Path, source: str, scheme: str | None) -> CacheEntry:
    status = [path.stat() for path in directory.iterdir() if path.is_file()]
    last_used = max((max(it.st_atime, it.st_mtime) for it in status), default=0.0)
    return CacheEntry(name, kind, directory, sum(_sizes(directory)), source, scheme, last_used)


def _sizes(directory: Path) -> list[int]:
    """Bytes of every file below `directory`; one that vanishes meanwhile counts for none."""
    sizes: list[int] = []
    for path in directory.rglob("*"):
        try:
            if path.is_file():
                sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return sizes
