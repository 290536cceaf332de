"""The header of a safetensors file, every length checked before it is believed; reads no weights.

Source: the safetensors format: 8 bytes little-endian N, N bytes of JSON, data without holes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.files import parse_json_object, require_file
from dashinfer_lab.numbers import is_whole
from dashinfer_lab.tensor import SAFETENSORS_DTYPES, TensorInfo

__all__ = ["StoredTensor", "parse_safetensors_header", "read_safetensors_header"]

_LENGTH_BYTES = 8
_HEADER_LIMIT_BYTES = 100_000_000
_AGAIN = "It is damaged or no safetensors file: download it again."


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor's shape and type, and the byte of the file at which it begins."""

    info: TensorInfo
    offset: int


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """Read and check the header of `path`, in the order of the data. Raises CheckpointError."""
    try:
        require_file(path)
        num_bytes = path.stat().st_size
        with path.open("rb") as file:
            header_bytes = _header_length(file.read(_LENGTH_BYTES), num_bytes, path)
            header = file.read(header_bytes)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_safetensors_header(header, num_bytes, path)


def _header_length(start: bytes, num_bytes: int, path: Path) -> int:
    if len(start) < _LENGTH_BYTES:
        raise CheckpointError(f"{path} has {num_bytes} bytes, a header needs 8. {_AGAIN}")
    length = struct.unpack("<Q", start)[0]
    if start.lstrip()[:1] == b"<":
        raise CheckpointError(f"{path} begins with {start!r}: a web page, not weights. {_AGAIN}")
    if not 2 <= length <= min(_HEADER_LIMIT_BYTES, num_bytes - _LENGTH_BYTES):
        raise CheckpointError(
            f"{path} declares a header of {length} bytes; the file has {num_bytes} bytes and "
            f"headers have at most {_HEADER_LIMIT_BYTES}. {_AGAIN}"
        )
    return length


def parse_safetensors_header(header: bytes, num_bytes: int, path: Path) -> dict[str, StoredTensor]:
    """Check a header's JSON against a file of `num_bytes`. Raises CheckpointError."""
    entries = parse_json_object(header, f"the header of {path}")
    data_start = _LENGTH_BYTES + len(header)
    entries.pop("__metadata__", None)
    tensors = {name: _tensor(name, entry, data_start, path) for name, entry in entries.items()}
    in_order = dict(sorted(tensors.items(), key=lambda item: item[1].offset))
    expected = data_start
    for name, tensor in in_order.items():
        if tensor.offset != expected:
            kind = "overlaps the tensor before it" if tensor.offset < expected else "leaves a hole"
            raise CheckpointError(
                f"{path}: {name!r} begins at byte {tensor.offset}, expected {expected}: it {kind}. "
                f"{_AGAIN}"
            )
        expected += tensor.info.num_bytes
    if expected != num_bytes:
        raise CheckpointError(
            f"{path} should have {expected} bytes by its header, it has {num_bytes}. {_AGAIN}"
        )
    return in_order


def _tensor(name: str, entry: object, data_start: int, path: Path) -> StoredTensor:
    fields = cast("Mapping[str, object]", entry) if isinstance(entry, dict) else {}
    shape, offsets = _counts(fields.get("shape")), _counts(fields.get("data_offsets"))
    code = fields.get("dtype")
    if shape is None or offsets is None or len(offsets) != 2 or len(shape) > 8:
        raise CheckpointError(
            f"{path}: the header's entry for {name!r} is malformed: {entry!r:.200}"
        )
    if not isinstance(code, str) or code not in SAFETENSORS_DTYPES:
        raise CheckpointError(
            f"{path}: {name!r} has the unknown element type {code!r}; known are "
            f"{', '.join(SAFETENSORS_DTYPES)}"
        )
    if 0 in shape:
        raise CheckpointError(f"{path}: {name!r} has an empty axis: {list(shape)}")
    info = TensorInfo(shape, SAFETENSORS_DTYPES[code])
    begin, end = offsets
    if end - begin != info.num_bytes:
        raise CheckpointError(
            f"{path}: {name!r} {code} {list(shape)} takes {info.num_bytes} bytes, its offsets "
            f"{begin}..{end} span {end - begin}. {_AGAIN}"
        )
    return StoredTensor(info, data_start + begin)


def _counts(value: object) -> tuple[int, ...] | None:
    """Return integers >= 0 below 2**63, or None for anything else."""
    if not isinstance(value, list):
        return None
    counts = [
        item for item in cast("list[object]", value) if is_whole(item) and 0 <= item < 1 << 63
    ]
    return tuple(counts) if len(counts) == len(cast("list[object]", value)) else None
