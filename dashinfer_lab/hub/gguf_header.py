"""The header of a GGUF file, every length checked before it is believed; reads no weights.

Source: the GGUF specification, versions 2 and 3 (little-endian).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import BinaryIO

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.files import require_file

__all__ = ["GgufHeader", "GgufTensor", "read_gguf_header"]

_MAGIC = b"GGUF"
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 1 << 16
_SMALLEST_ENTRY_BYTES = 12
_MAX_ALIGNMENT = 1 << 16


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies in the file; shape in elements, outermost first."""

    name: str
    shape: tuple[int, ...]
    quantization: int
    offset: int
    num_bytes: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata and tensor table of one file, and a fingerprint of both."""

    metadata: Mapping[str, object]
    tensors: Mapping[str, GgufTensor]
    fingerprint: str


class _Cursor:
    """Reads forward through a file of known size and refuses to pass its end."""

    def __init__(self, file: BinaryIO, path: Path, num_bytes: int) -> None:
        self.path = path
        self.position = 0
        self.num_bytes = num_bytes
        self.digest = hashlib.sha256(str(num_bytes).encode())
        self._file = file

    def take(self, count: int, what: str) -> bytes:
        if count > self.num_bytes - self.position:
            raise CheckpointError(
                f"{self.path} is truncated or damaged: {what} needs {count} bytes at offset "
                f"{self.position}, the file ends at {self.num_bytes}. Download it again."
            )
        content = self._file.read(count)
        self.position += count
        self.digest.update(content)
        return content

    def number(self, code: str, what: str) -> int:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def string(self, what: str) -> str:
        count = self.number("Q", what)
        try:
            return self.take(count, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path}: {what} is not UTF-8 text") from error

    def count(self, what: str, smallest: int) -> int:
        """Read a count of entries, each of which takes `smallest` bytes at least."""
        count = self.number("Q", what)
        if count * smallest > self.num_bytes - self.position:
            raise CheckpointError(
                f"{self.path}: {what} is {count}, more than the file's {self.num_bytes} bytes "
                "can hold. It is damaged: download it again."
            )
        return count


def read_gguf_header(path: Path) -> GgufHeader:
    """Read and check the header of the GGUF file `path`.

    Raises CheckpointError for a damaged file, UnsupportedModelError for a version not read here.
    """
    try:
        require_file(path)
        with path.open("rb") as file:
            cursor = _Cursor(file, path, path.stat().st_size)
            num_tensors, num_keys = _read_preamble(cursor)
            metadata = _read_metadata(cursor, num_keys)
            entries = [_read_entry(cursor) for _ in range(num_tensors)]
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    tensors = _place(cursor, entries, _alignment(path, metadata))
    return GgufHeader(metadata, tensors, cursor.digest.hexdigest())


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    magic = cursor.take(4, "the magic")
    if magic != _MAGIC:
        raise CheckpointError(
            f"{cursor.path} begins with {magic!r}, a GGUF file begins with {_MAGIC!r}. "
            "It is no GGUF file or a failed download."
        )
    version = cursor.number("I", "the version")
    if version not in (2, 3):
        raise UnsupportedModelError(
            f"{cursor.path} is GGUF version {version}; little-endian versions 2 and 3 are read. "
            "Convert it with a current gguf tool."
        )
    num_tensors = cursor.count("the number of tensors", _SMALLEST_ENTRY_BYTES)
    return num_tensors, cursor.count("the number of metadata keys", _SMALLEST_ENTRY_BYTES)


def _read_metadata(cursor: _Cursor, num_keys: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(num_keys):
        key = cursor.string("a metadata key")
        if key in metadata:
            raise CheckpointError(f"{cursor.path}: the metadata key {key!r} occurs twice")
        metadata[key] = _read_value(cursor, key, cursor.number("I", f"the type of {key!r}"))
    return metadata


def _read_value(cursor: _Cursor, key: str, kind: int) -> object:
    what = f"the value of {key!r}"
    if kind == _STRING:
        return cursor.string(what)
    if kind == _ARRAY:
        return _read_array(cursor, key)
    return cursor.number(_scalar_code(cursor.path, key, kind), what)


def _read_array(cursor: _Cursor, key: str) -> list[object]:
    kind = cursor.number("I", f"the element type of {key!r}")
    what = f"the length of {key!r}"
    if kind == _STRING:
        return [cursor.string(key) for _ in range(cursor.count(what, 8))]
    code = _scalar_code(cursor.path, key, kind)
    count = cursor.count(what, struct.calcsize("<" + code))
    content = cursor.take(count * struct.calcsize("<" + code), key)
    return list(struct.unpack(f"<{count}{code}", content))


def _scalar_code(path: Path, key: str, kind: int) -> str:
    if kind not in _SCALARS:
        raise CheckpointError(f"{path}: {key!r} has the unknown value type {kind}")
    return _SCALARS[kind]


def _read_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Return name, shape, quantisation and offset within the data of the next tensor."""
    name = cursor.string("a tensor's name")
    if len(name) > _MAX_NAME_BYTES:
        raise CheckpointError(f"{cursor.path}: a tensor's name has {len(name)} characters")
    rank = cursor.number("I", f"the rank of {name!r}")
    if not 1 <= rank <= _MAX_DIMENSIONS:
        raise CheckpointError(f"{cursor.path}: {name!r} has rank {rank}; 1 to 4 are possible")
    innermost_first = [cursor.number("Q", f"the shape of {name!r}") for _ in range(rank)]
    if 0 in innermost_first:
        raise CheckpointError(f"{cursor.path}: {name!r} has an empty axis: {innermost_first}")
    quantization = cursor.number("I", f"the type of {name!r}")
    offset = cursor.number("Q", f"the offset of {name!r}")
    return name, tuple(reversed(innermost_first)), quantization, offset


def _alignment(path: Path, metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", 32)
    sound = isinstance(alignment, int) and 1 <= alignment <= _MAX_ALIGNMENT
    if not isinstance(alignment, int) or not sound or alignment & (alignment - 1):
        raise CheckpointError(
            f"{path}: general.alignment is {alignment!r}, expected a power of two"
        )
    return alignment


def _place(
    cursor: _Cursor, entries: list[tuple[str, tuple[int, ...], int, int]], alignment: int
) -> dict[str, GgufTensor]:
    """Turn offsets within the data into offsets within the file, checking each."""
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, quantization, offset in entries:
        if name in tensors:
            raise CheckpointError(f"{cursor.path}: the tensor {name!r} occurs twice")
        row_bytes = _row_bytes(cursor.path, name, shape[-1], quantization)
        num_bytes = prod(shape[:-1]) * row_bytes
        if offset % alignment or data_start + offset + num_bytes > cursor.num_bytes:
            raise CheckpointError(
                f"{cursor.path} is truncated or damaged: {name!r} {list(shape)} takes {num_bytes} "
                f"bytes at offset {data_start + offset}, the file ends at {cursor.num_bytes}. "
                "Download it again."
            )
        tensors[name] = GgufTensor(
            name, shape, quantization, data_start + offset, num_bytes, row_bytes
        )
    by_offset = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for before, after in pairwise(by_offset):
        if before.offset + before.num_bytes > after.offset:
            raise CheckpointError(f"{cursor.path}: {before.name!r} and {after.name!r} overlap")
    return tensors


def _row_bytes(path: Path, name: str, num_columns: int, quantization: int) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(quantization)]
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: {name!r} has the unknown quantisation type {quantization}"
        ) from error
    if num_columns % block:
        raise CheckpointError(
            f"{path}: {name!r} has rows of {num_columns} elements, its blocks hold {block}"
        )
    return num_columns // block * block_bytes
