"""Makes a directory appear whole or not at all: written beside its target, renamed last."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from dashinfer_lab.errors import ConversionError

__all__ = ["ELSEWHERE", "is_staging", "remove_stale", "require_space", "staging_directory"]

ELSEWHERE = "choose another directory (the cache's with DASHINFER_LAB_CACHE)"

_MARK = ".converting-"


def is_staging(directory: Path) -> bool:
    """Say whether `directory` has the name of an unfinished conversion."""
    return directory.name.startswith(".") and _MARK in directory.name


@contextmanager
def staging_directory(target: Path, *, replace: bool = False) -> Generator[Path]:
    """Yield a directory to fill; rename it to `target` at the end, remove it on any exception.

    Unless `replace`, the target must be absent then, or an empty directory. Files and directories
    reach the disk before the rename, so that a crash leaves the old state or the new one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    staging, lock = _locked_directory(target)
    try:
        yield staging
        for path in (*staging.iterdir(), staging):
            _sync(path)
        if replace and target.exists():
            _move_aside(target)
        staging.rename(target)
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    if replace:
        remove_stale(target)


def remove_stale(target: Path) -> None:
    """Remove what conversions to `target` that were killed have left beside it."""
    for staging in target.parent.glob(f".{target.name}{_MARK}*"):
        try:
            handle = os.open(staging, os.O_RDONLY)
        except OSError:
            continue  # another process removed it first
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(staging, ignore_errors=True)
        except BlockingIOError:
            pass  # a conversion that is still running
        finally:
            os.close(handle)


def require_space(staging: Path, num_bytes: int) -> None:
    """Raise ConversionError unless the disk of `staging` has room for `num_bytes`."""
    free = shutil.disk_usage(staging).free
    if free < num_bytes:
        raise ConversionError(
            f"the converted model needs {num_bytes / 1e6:.0f} MB, but the disk of {staging.parent} "
            f"has {free / 1e6:.0f} MB free; free some space or {ELSEWHERE}"
        )


def _locked_directory(target: Path) -> tuple[Path, int]:
    """Make a directory beside `target`, locked so that `remove_stale` sees someone at work."""
    while True:
        staging = target.with_name(f".{target.name}{_MARK}{os.getpid()}-{secrets.token_hex(4)}")
        staging.mkdir()
        try:
            lock = os.open(staging, os.O_RDONLY)
        except FileNotFoundError:
            continue  # removed by `remove_stale`, which found it not locked yet
        fcntl.flock(lock, fcntl.LOCK_EX)
        if staging.exists():  # not removed by `remove_stale` just before it was locked
            return staging, lock
        os.close(lock)


def _move_aside(target: Path) -> None:
    """Rename `target` so that `remove_stale` will remove it."""
    target.rename(target.with_name(f".{target.name}{_MARK}replaced-{secrets.token_hex(4)}"))


def _sync(path: Path) -> None:
    """Reach the disk, then leave the page cache: it is read back in pages of 2 MB.

    Written piece by piece, a file lies in the cache in pages of 4 KB, and decoding from those
    took 15 to 25 % longer on a virtual machine than from huge ones (`Artifact.prefault`).
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
