"""Where a model's files are on this machine; never fetches."""

from __future__ import annotations

from pathlib import Path

__all__ = ["path_here"]


def path_here(model: str | Path) -> Path | None:
    """Return the files of `model`, None where they are not here."""
    from dashinfer_lab.config import cache_root, embedded_override, expanded
    from dashinfer_lab.hub.embedded import EMBEDDED_MODELS
    from dashinfer_lab.hub.locate import cached_snapshots

    path = expanded(model)
    if _exists(path):
        return path
    embedded = EMBEDDED_MODELS.get(str(model))
    if embedded is not None:
        kept = embedded_override() or cache_root() / "models" / embedded.name / embedded.file_name
        return kept if kept.is_file() else None
    return dict(cached_snapshots()).get(str(model))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no name for a file: it is too long
        return False
