"""Careful reading and writing of a model's files; knows nothing of what they mean.

Nothing in a model's directory is trusted: names stay inside it, sizes are bounded.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.numbers import is_whole

__all__ = [
    "confined",
    "parse_json_object",
    "read_bounded_text",
    "read_bytes_at",
    "read_json_object",
    "require_file",
    "sample_bytes",
    "token_ids",
    "write_atomically",
    "write_json",
]

_JSON_LIMIT_BYTES = 256 << 20
_TEXT_LIMIT_BYTES = 1 << 20
_SAMPLE_BYTES = 4096


def confined(directory: Path, name: str) -> Path:
    """Return the file `name` of `directory`, refusing any that lies outside it.

    A hub's snapshot links to the hub's own blobs; those, and no others, may lie beside it.
    Raises CheckpointError. The file need not exist.
    """
    if not name or name in {".", ".."} or Path(name).name != name or "\\" in name or "\0" in name:
        raise CheckpointError(
            f"{directory} names the file {name!r}: only a plain file name inside the model's "
            "directory is allowed. Do not use this model, or correct its index."
        )
    root = Path(os.path.realpath(directory))
    target = Path(os.path.realpath(root / name))  # unlike resolve, ends in a loop of links
    allowed = [root]
    if root.parent.name == "snapshots":
        allowed.append(root.parent.parent / "blobs")
    if not any(target.is_relative_to(folder) for folder in allowed):
        raise CheckpointError(
            f"{directory / name} is a link to {target}, outside the model's directory. "
            "Copy the file into the directory if you trust it."
        )
    return target


def require_file(path: Path) -> None:
    """Raise CheckpointError for a pipe or device, at which a reader might wait for ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise CheckpointError(f"{path} cannot be read: it is not a file")


def read_bounded_text(path: Path) -> str:
    """Read a short text, such as a chat template; raises CheckpointError for one of a megabyte."""
    require_file(path)
    if path.stat().st_size > _TEXT_LIMIT_BYTES:
        raise CheckpointError(f"{path} is larger than {_TEXT_LIMIT_BYTES} bytes: not a short text")
    return path.read_text(encoding="utf-8", errors="replace")


def read_json_object(path: Path) -> dict[str, object]:
    """Read a file that holds one JSON object. Raises CheckpointError."""
    try:
        require_file(path)
        if path.stat().st_size > _JSON_LIMIT_BYTES:
            raise CheckpointError(f"{path} is larger than {_JSON_LIMIT_BYTES} bytes: not JSON text")
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_json_object(text, str(path))


def parse_json_object(text: bytes, origin: str) -> dict[str, object]:
    """Parse one JSON object; a repeated key is refused. Raises CheckpointError."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            repeated = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise CheckpointError(f"{origin}: the key {repeated!r} occurs twice")
        return found

    try:
        parsed = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{origin} is not valid JSON: {error}. Download it again.") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{origin} holds a {type(parsed).__name__}, not a JSON object")
    return cast("dict[str, object]", parsed)


def read_bytes_at(
    descriptor: int, offset: int, num_bytes: int, path: Path
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Read exactly `num_bytes` from `offset` into a fresh array; no memory map is made.

    Raises CheckpointError for a file that ends before.
    """
    buffer = np.empty(num_bytes, np.uint8)
    view = buffer.data
    done = 0
    while done < num_bytes:
        got = os.preadv(descriptor, [view[done:]], offset + done)
        if got == 0:
            raise CheckpointError(
                f"{path} is truncated: {num_bytes} bytes were expected at offset {offset}, "
                f"{done} are there. Download it again."
            )
        done += got
    return buffer


def sample_bytes(descriptor: int, offset: int, num_bytes: int, path: Path) -> bytes:
    """Read the first and the last 4 KB of a tensor's bytes: what tells equal tables apart.

    Raises CheckpointError for a file that ends before.
    """
    count = min(num_bytes, _SAMPLE_BYTES)
    places = (offset, offset + num_bytes - count)
    return b"".join(read_bytes_at(descriptor, at, count, path).tobytes() for at in places)


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` beside `path` and rename: the file is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.incomplete")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def token_ids(value: object, origin: str) -> list[int]:
    """Return token ids given as none, one or a list of them. Raises CheckpointError."""
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    ids = [each for each in listed if is_whole(each)]
    if value is not None and (len(ids) != len(listed) or min(ids, default=0) < 0):
        raise CheckpointError(f"{origin} is {value!r:.100}; expected token ids, integers from 0")
    return ids


def write_json(path: Path, content: Mapping[str, object], *, indent: int | None = 2) -> None:
    """Write a JSON object atomically, in UTF-8; `indent` None for what nobody reads.

    Half a surrogate pair, which UTF-8 cannot hold, stays the escape that it was in its file.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(content, ensure_ascii=False, indent=indent, separators=separators) + "\n"
    write_atomically(path, text.encode("utf-8", "backslashreplace"))
