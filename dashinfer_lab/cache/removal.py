"""Removes from the cache what is named, a whole kind, or what cut work has left behind.

Nothing outside the cache's root is touched, whatever a link says, nor what a running process is
just making. What goes is renamed first, so that a cut removal leaves nothing that loads.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dashinfer_lab.cache.entries import KINDS, CacheEntry, list_entries
from dashinfer_lab.config import cache_root
from dashinfer_lab.errors import CacheError, ConfigError, HubError

__all__ = ["Removed", "clear", "prune", "remove"]

_REMOVING: Final = ".removing-"
_LOCKED_WHILE_MADE: Final = ("models/*/snapshots/.fetch-*", "conversions/.*.converting-*")
_YOUNG_WHILE_MADE: Final = (
    "models/*/.fetch-*",
    "models/*/.*.incomplete",
    "models/*/snapshots/.replaced-*",
    "objects/*/.*.part",
    "schedules/.*.part",
    "lowered/.*.incomplete",
    "conversions/*/.*.incomplete",
    ".*.incomplete",
)
_LEFT_BY_REMOVAL: Final = (f"*/{_REMOVING}*", f"*/*/{_REMOVING}*", f"*/*/*/{_REMOVING}*")
_YOUNG_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Removed:
    """One thing that is gone, and the bytes it took."""

    name: str
    path: Path
    num_bytes: int


def remove(names: Sequence[str]) -> list[Removed]:
    """Remove models by the names that `list_entries` gives, or by their paths.

    Raises HubError, before anything is removed, where one of them names no model of the cache;
    CacheError for one that a link leads out of it, or that the system does not let go.
    """
    entries = list_entries()
    chosen = [_named(name, entries) for name in names]
    for entry in chosen:
        _require_inside(entry.path)
    return [_removed(entry.name, entry.path) for entry in dict.fromkeys(chosen)]


def clear(kind: str) -> list[Removed]:
    """Remove everything of one of `KINDS` but what another process is making.

    Raises ConfigError for an unknown kind, and CacheError as `remove` does.
    """
    if kind not in KINDS:
        raise ConfigError(f"the cache has no kind {kind!r}; it is one of {', '.join(KINDS)}")
    busy = {path for pattern in _LOCKED_WHILE_MADE for path in _glob(pattern) if _is_locked(path)}
    directory = cache_root() / kind
    if not directory.is_dir():
        return []
    found = sorted(directory.iterdir())
    idle = [path for path in found if not any(it.is_relative_to(path) for it in busy)]
    for path in idle:
        _require_inside(path)
    return [_removed(path.name, path) for path in idle]


def prune(now: float) -> list[Removed]:
    """Remove what cut fetches, conversions and removals have left; `now` as `time.time` gives it.

    A fetch that was cut can go on from what it left, until that is pruned. Raises CacheError as
    `remove` does.
    """
    stale = [path for pattern in _LOCKED_WHILE_MADE for path in _glob(pattern)]
    stale = [path for path in stale if not _is_locked(path)]
    stale += [path for pattern in _LEFT_BY_REMOVAL for path in _glob(pattern)]
    for pattern in _YOUNG_WHILE_MADE:
        stale += [path for path in _glob(pattern) if now - _changed(path) > _YOUNG_SECONDS]
    for path in stale:
        _require_inside(path)
    return [_removed(path.name, path) for path in dict.fromkeys(stale)]


def _named(name: str, entries: Sequence[CacheEntry]) -> CacheEntry:
    found = [it for it in entries if name == it.name or Path(name).expanduser() == it.path]
    if found:
        return found[0]
    known = [entry.name for entry in entries]
    near = difflib.get_close_matches(name, known, 3, 0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "`dashinfer-lab list` names them"
    raise HubError(f"the cache {cache_root()} holds no model {name!r:.200}: {hint}")


def _glob(pattern: str) -> Iterator[Path]:
    return cache_root().glob(pattern)


def _require_inside(path: Path) -> None:
    """Raise CacheError unless `path` is below the cache's root, links followed."""
    root, parent = cache_root().resolve(), path.parent.resolve()
    if parent != root and not parent.is_relative_to(root):
        raise CacheError(
            f"{path} lies in {parent}, outside the cache {root}, by way of a link: nothing was "
            "removed. Remove it there yourself."
        )


def _removed(name: str, path: Path) -> Removed:
    num_bytes = _tree_bytes(path)
    doomed = path.with_name(f"{_REMOVING}{secrets.token_hex(8)}")
    try:
        path.rename(doomed)
        if doomed.is_dir() and not doomed.is_symlink():
            shutil.rmtree(doomed)
        else:
            doomed.unlink()
    except OSError as error:
        raise CacheError(
            f"{path} cannot be removed: {error.strerror or error}; allow writing in {path.parent} "
            "and below it, then repeat"
        ) from error
    _remove_empty(path.parent)
    return Removed(name, path, num_bytes)


def _remove_empty(directory: Path) -> None:
    """Remove `directory` and those above it as far as they are empty, the kind's own excepted."""
    root = cache_root()
    while directory.parent != root and directory.is_relative_to(root):
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent


def _tree_bytes(path: Path) -> int:
    if path.is_symlink():
        return 0
    if path.is_file():
        return path.stat().st_size
    return sum(it.stat().st_size for it in path.rglob("*") if it.is_file())


def _changed(path: Path) -> float:
    """Latest change of `path` or of anything below it."""
    below = path.rglob("*") if path.is_dir() else ()
    return max(it.stat().st_mtime for it in (path, *below))


def _is_locked(directory: Path) -> bool:
    """Whether a process holds the lock that whoever fills `directory` takes."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
