"""DashInfer's .ditensors: which tensor lies where; reads headers, no weights.

Records of "AS", u16 1, u16 length of the name, the name, a line with a Python literal (descr,
fortran_order, shape, ...), the elements; "AS", u16 0, u16 0 ends. There is no index.
"""

from __future__ import annotations

import ast
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.numbers import is_whole
from dashinfer_lab.tensor import TensorInfo

__all__ = ["DiTensor", "is_ditensors", "read_ditensors"]

_MAGIC: Final = b"AS"
_HEAD: Final = struct.Struct("<2sHH")
_LINE_LIMIT: Final = 2048
_DTYPES: Final[Mapping[str, str]] = {
    "f4": "float32", "f2": "float16", "b2": "bfloat16", "i1": "int8", "u1": "uint8",
    "i4": "int32", "i8": "int64", "b1": "bool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiTensor:
    """A stored tensor: shape, element type and where its first byte lies in the file."""

    info: TensorInfo
    offset: int


def is_ditensors(path: Path) -> bool:
    """Say whether the file begins as DashInfer's do; ours begins with the length of a header."""
    with path.open("rb") as file:
        return file.read(4) == _MAGIC + b"\x01\0"


def read_ditensors(path: Path) -> dict[str, DiTensor]:
    """Return every tensor by name, in the file's order.

    Raises CheckpointError for what is damaged or cut off, UnsupportedModelError for tensors in a
    layout that is not read, by name.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        tensors: dict[str, DiTensor] = {}
        for name, tensor in _records(descriptor, os.fstat(descriptor).st_size, path):
            if name in tensors:
                raise CheckpointError(f"{path} holds the tensor {name!r:.200} twice")
            tensors[name] = tensor
        return tensors
    finally:
        os.close(descriptor)


def _records(descriptor: int, file_bytes: int, path: Path) -> Iterator[tuple[str, DiTensor]]:
    at = 0
    while True:
        head = os.pread(descriptor, _HEAD.size, at)
        if len(head) < _HEAD.size:
            raise CheckpointError(f"{path} is cut off after {at} bytes: get it again")
        magic, kind, length = _HEAD.unpack(head)
        if magic != _MAGIC or kind > 1:
            raise CheckpointError(f"{path} is damaged at byte {at}: get it again")
        if kind == 0:
            return
        at += _HEAD.size
        name = os.pread(descriptor, length, at).decode("utf-8", "replace")
        at += length
        line, _, _ = os.pread(descriptor, _LINE_LIMIT, at).partition(b"\n")
        at += len(line) + 1
        info = _info(line, name, path)
        if at + info.num_bytes > file_bytes:
            raise CheckpointError(
                f"{path} is cut off within {name!r:.200}: {info.num_bytes} bytes were expected at "
                f"{at}, the file has {file_bytes}. Get it again."
            )
        yield name, DiTensor(info, at)
        at += info.num_bytes


def _info(line: bytes, name: str, path: Path) -> TensorInfo:
    told = _literal(line, name, path)
    shape, kind = told.get("shape"), str(told.get("descr")).lstrip("<|=")
    sizes = cast("tuple[object, ...]", shape) if isinstance(shape, tuple) else (None,)
    if any(not is_whole(size) or size < 0 for size in sizes):
        raise CheckpointError(f"{path}: {name!r:.200} has the shape {shape!r:.100}: get it again")
    dense = not told.get("sparse_type") and not told.get("fortran_order")
    if kind not in _DTYPES or not dense:
        raise UnsupportedModelError(
            f"{path}: {name!r:.200} is stored as {kind!r:.40}"
            f"{'' if dense else ', sparse or by columns'}, which is not read. Convert the model's "
            "original checkpoint."
        )
    return TensorInfo(tuple(cast("tuple[int, ...]", sizes)), _DTYPES[kind])


def _literal(line: bytes, name: str, path: Path) -> dict[str, Any]:
    try:
        told = ast.literal_eval(line.decode("ascii"))
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise CheckpointError(f"{path}: the header of {name!r:.200} is damaged") from error
    if not isinstance(told, dict):
        raise CheckpointError(f"{path}: the header of {name!r:.200} is damaged")
    return cast("dict[str, Any]", told)
