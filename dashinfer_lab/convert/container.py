"""The weights file: a safetensors container whose tensors are 64-byte aligned; knows no models.

safetensors allows no holes, so gaps between tensors are tensors themselves, named `__pad.N`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph import StoredTensor

__all__ = ["ALIGNMENT", "ContainerIndex", "ContainerWriter", "read_container", "read_index"]

ALIGNMENT = 64
_PAD = "__pad."
_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit
_ELEMENT_BYTES: Final = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}


@dataclass(frozen=True, slots=True)
class ContainerIndex:
    """What a container holds: where each tensor lies in the file, and the metadata strings."""

    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]


class ContainerWriter:
    """Writes tensors one after another; the header, written last, makes the file readable.

    `shapes` names every tensor to come, so that room for the header can be left before them.
    """

    def __init__(
        self, path: Path, shapes: Mapping[str, tuple[int, ...]], metadata_bytes: int
    ) -> None:
        self._file = path.open("w+b")
        self._tensors: dict[str, StoredTensor] = {}
        # An entry's offsets have at most 2 * 16 digits; each tensor may need a pad after it.
        entries = sum(
            len(json.dumps(name)) + 12 * len(shape) + 190 for name, shape in shapes.items()
        )
        capacity = _LENGTH.size + entries + metadata_bytes + 1024
        self._start = -(-capacity // ALIGNMENT) * ALIGNMENT
        self._file.seek(self._start)

    def __enter__(self) -> ContainerWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """The tensors written so far."""
        return self._tensors

    def append(
        self, name: str, dtype: str, shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]
    ) -> bool:
        """Write the next tensor from consecutive `blocks`, or undo it where they end too early.

        Returns whether the tensor is complete.
        """
        offset = self._file.tell()
        for block in blocks:
            self._file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
        num_bytes = self._file.tell() - offset
        if num_bytes != prod(shape) * _ELEMENT_BYTES[dtype]:
            self._file.seek(offset)
            self._file.truncate()
            return False
        self._tensors[name] = StoredTensor(dtype, shape, offset, num_bytes)
        gap = -num_bytes % ALIGNMENT
        if gap:
            pad = f"{_PAD}{len(self._tensors)}"
            self._tensors[pad] = StoredTensor("U8", (gap,), offset + num_bytes, gap)
            self._file.write(bytes(gap))
        self._file.flush()
        # The disk begins to write now; the last flush then waits for little.
        os.posix_fadvise(self._file.fileno(), offset, num_bytes, os.POSIX_FADV_DONTNEED)
        return True

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Write the header, padded with spaces to the room left for it."""
        header: dict[str, Any] = {"__metadata__": dict(metadata)}
        for name, tensor in self._tensors.items():
            begin = tensor.offset - self._start
            header[name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [begin, begin + tensor.num_bytes],
            }
        room = self._start - _LENGTH.size
        text = json.dumps(header, separators=(",", ":")).encode()
        assert len(text) <= room, "the room for the header was computed too small"
        self._file.seek(0)
        self._file.write(_LENGTH.pack(room) + text.ljust(room))
        self._file.flush()


def read_container(path: Path) -> ContainerIndex:
    """Read the header of `path` and check it against the file's length.

    Raises ArtifactError for a file that is truncated, or whose header is not what was written:
    overlapping, misaligned or missing ranges, wrong lengths, unknown types, repeated names.
    """
    try:
        with path.open("rb") as file:
            return read_index(file, path)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error


def read_index(file: BinaryIO, path: Path) -> ContainerIndex:
    """Do what `read_container` does with the open `file` of `path`; raises OSError, too."""
    size = file.seek(0, 2)
    start, header = _read_header(file, size, path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ArtifactError(f"{path}: the metadata are not strings; re-convert the model")
    tensors = {name: _stored_tensor(path, name, entry, start) for name, entry in header.items()}
    end = start
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
        if tensor.offset != end:
            raise _damaged(path, f"tensor {name!r} begins at {tensor.offset}, not at {end}")
        if tensor.offset % ALIGNMENT and not name.startswith(_PAD):
            raise _damaged(path, f"tensor {name!r} at {tensor.offset} is not 64-byte aligned")
        end += tensor.num_bytes
    if end != size:
        raise _damaged(path, f"its header describes {end} bytes, but the file has {size}")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(_PAD)}
    return ContainerIndex(kept, metadata)


def _read_header(file: BinaryIO, size: int, path: Path) -> tuple[int, dict[str, Any]]:
    file.seek(0)
    prefix = file.read(_LENGTH.size)
    length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
    if not 2 <= length <= min(_MAX_HEADER_BYTES, size - _LENGTH.size):
        raise _damaged(path, f"its header claims {length} bytes of {size}")
    try:
        header = json.loads(file.read(length), object_pairs_hook=_unique)
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are both ValueErrors
        raise _damaged(path, f"its header is not JSON ({error})") from error
    except RecursionError as error:
        raise _damaged(path, "its header is nested too deeply") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    return _LENGTH.size + length, header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _stored_tensor(path: Path, name: str, entry: Any, start: int) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        integers = all(type(number) is int and number >= 0 for number in [*shape, begin, end])
        if integers and end - begin == prod(shape) * _ELEMENT_BYTES[dtype]:
            return StoredTensor(dtype, shape, start + begin, end - begin)
    except (KeyError, TypeError, ValueError):
        pass  # the message below says what was read
    raise _damaged(path, f"the entry of tensor {name!r} is nonsense: {entry!r:.200}")


def _damaged(path: Path, reason: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {reason}; re-convert the model")
