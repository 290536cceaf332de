"""A hub's model in the cache: fetched into a directory beside its place, renamed when complete.

A fetch that was cut goes on where it stopped. The mark, a list of the files with their sizes, is
written last; a directory without it is no model. Knows no hub.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

from dashinfer_lab.errors import CheckpointError, HubError, HubUnreachableError
from dashinfer_lab.hub.files import read_json_object, write_json
from dashinfer_lab.hub.hub_client import HubClient, HubFile, Listing, model_files
from dashinfer_lab.hub.model_id import HubId

__all__ = ["SnapshotMark", "fetch_snapshot", "is_complete", "is_unfinished", "read_mark"]

Progress = Callable[[str, int, int], None]

_FETCHING: Final = ".fetch-"
_REPLACED: Final = ".replaced-"
_MARK: Final = ".complete.json"
_SPARE_BYTES: Final = 16 << 20
_BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """What a finished snapshot is of, and all its files."""

    source: str
    commit: str
    files: tuple[HubFile, ...]

    @property
    def revision(self) -> str:
        """The hub's revision and a digest of the files, since a branch moves."""
        return f"{self.commit}-{hashlib.sha256(repr(self.files).encode()).hexdigest()[:12]}"

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.num_bytes for file in self.files)


def fetch_snapshot(
    client: HubClient, model: HubId, progress: Progress | None = None, *, refresh: bool = False
) -> Path:
    """Return the directory of `model`, fetching what is not there yet.

    A complete snapshot is returned without a look at the hub unless `refresh`; without a network
    it is returned even so. Raises HubError.
    """
    target = model.directory
    complete = is_complete(target, model)
    if complete and not refresh:
        return target
    try:
        listing = client.list_files(model)
    except HubUnreachableError:
        if complete:
            return target
        raise
    files = model_files(model, listing.files)
    try:
        with _fetching(target, progress) as staging:
            if _holds(target, model, files):
                shutil.rmtree(staging)
            else:
                _fetch(client, model, listing, files, staging, progress)
                _publish(staging, target)
    except OSError as error:
        raise HubError(
            f"{model} cannot be stored in {target.parent}: {error}; DASHINFER_LAB_CACHE names "
            "another folder"
        ) from error
    return target


def is_complete(directory: Path, model: HubId | None = None) -> bool:
    """Say whether `directory` is a complete snapshot (of `model`, where given)."""
    mark = read_mark(directory)
    if mark is None or (model is not None and mark.source != str(model)):
        return False
    return all(_has(directory, file) for file in mark.files)


def is_unfinished(directory: Path) -> bool:
    """Say whether `directory` has the name of a fetch that did not end."""
    return directory.name.startswith((_FETCHING, _REPLACED))


def read_mark(directory: Path) -> SnapshotMark | None:
    """Read the mark of a finished snapshot; None where there is none, or a damaged one."""
    if is_unfinished(directory):
        return None
    try:
        content: dict[str, Any] = read_json_object(directory / _MARK)
        if content["format"] != 1:
            return None
        files = [HubFile(it["name"], it["size"], it["sha256"]) for it in content["files"]]
        return SnapshotMark(content["source"], content["revision"], tuple(files))
    except (CheckpointError, KeyError, TypeError):
        return None


def _fetch(
    client: HubClient,
    model: HubId,
    listing: Listing,
    files: Sequence[HubFile],
    staging: Path,
    progress: Progress | None,
) -> None:
    """Bring all of `files` into `staging`, write the mark."""
    _reuse(model.directory, files, staging)
    total = sum(file.num_bytes for file in files)
    _require_space(model, total - _bytes_in(staging), staging)
    present = sum(file.num_bytes for file in files if _has(staging, file))
    advance = _counter(f"fetching {model}", present, total, progress)
    try:
        client.download(model, listing.commit, [f.name for f in files], staging, advance)
    except OSError:  # a full disk: what came so far would keep it full
        shutil.rmtree(staging, ignore_errors=True)
        raise
    wrong = [file for file in files if not _has(staging, file)]
    if wrong:
        raise HubError(
            f"{model}: {wrong[0].name} is not the {wrong[0].num_bytes} bytes that the hub lists. "
            "The model may have changed meanwhile: fetch it again."
        )
    if not client.compares_hashes:
        _require_hashes(model, files, staging)
    _remove_all_but({file.name for file in files}, staging)
    for path in staging.iterdir():
        _sync(path)
    listed = [{"name": f.name, "size": f.num_bytes, "sha256": f.sha256} for f in files]
    mark = {"format": 1, "source": str(model), "revision": listing.commit, "files": listed}
    write_json(staging / _MARK, mark)


def _require_hashes(model: HubId, files: Sequence[HubFile], staging: Path) -> None:
    """Remove a file that has another sha256 than the hub states, and raise HubError."""
    for file in files:
        path = staging / file.name
        if file.sha256 is not None and (found := _digest(path)) != file.sha256:
            path.unlink()
            raise HubError(
                f"{model}: {file.name} has the sha256 {found}, and the hub lists {file.sha256}: it "
                "was not kept. Fetch it again."
            )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _counter(what: str, done: int, total: int, progress: Progress | None) -> Callable[[int], None]:
    """Sum up bytes told from several threads."""
    lock, count = Lock(), [done]

    def advance(num_bytes: int) -> None:
        with lock:
            count[0] += num_bytes
            if progress is not None:
                progress(what, max(0, min(count[0], total)), total)

    advance(0)
    return advance


@contextmanager
def _fetching(target: Path, progress: Progress | None) -> Generator[Path]:
    """Yield the directory to fetch into, which outlives a cut; one process at a time."""
    staging = target.with_name(f"{_FETCHING}{target.name}")
    handle = _locked(staging, progress)
    try:
        yield staging
    finally:
        os.close(handle)


def _locked(staging: Path, progress: Progress | None) -> int:
    while True:
        staging.parent.mkdir(parents=True, exist_ok=True)
        # Not `exist_ok`: it looks whether a directory is there, and by then another may have moved.
        with suppress(FileExistsError):
            staging.mkdir()
        try:
            handle = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # published, or removed, since it was made
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if progress is not None:
                    progress("waiting for another process that fetches the same model", 0, 0)
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_still(staging, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # it was published meanwhile


def _is_still(path: Path, handle: int) -> bool:
    """Whether `path` is the directory that `handle` was opened on."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _publish(staging: Path, target: Path) -> None:
    """Put `staging` in the place of `target`; the old one, if any, is removed after that."""
    _sync(staging)
    replaced = None
    if target.exists():
        replaced = target.with_name(f"{_REPLACED}{secrets.token_hex(8)}")
        target.rename(replaced)
    staging.rename(target)
    _sync(target.parent)
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)


def _holds(target: Path, model: HubId, files: Sequence[HubFile]) -> bool:
    """Whether `target` is complete with exactly `files`."""
    mark = read_mark(target)
    return mark is not None and mark.files == tuple(files) and is_complete(target, model)


def _reuse(target: Path, files: Sequence[HubFile], staging: Path) -> None:
    """Link what an older snapshot has already; the client compares its hash and may refuse it."""
    for file in files:
        source, link = target / file.name, staging / file.name
        if _has(target, file) and not source.is_symlink() and not link.exists():
            os.link(source, link)


def _require_space(model: HubId, num_bytes: int, directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < num_bytes + _SPARE_BYTES:
        raise HubError(
            f"{model} needs {num_bytes / 1e6:.0f} MB more in {directory.parent}, "
            f"{free / 1e6:.0f} MB are free. Free some, or set DASHINFER_LAB_CACHE to another disk."
        )


def _bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _has(directory: Path, file: HubFile) -> bool:
    path = directory / file.name
    return path.is_file() and path.stat().st_size == file.num_bytes


def _remove_all_but(names: set[str], directory: Path) -> None:
    for path in directory.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
