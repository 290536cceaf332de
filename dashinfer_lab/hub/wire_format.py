"""Protocol buffers' wire format, read with bounds; knows no message."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dashinfer_lab.errors import CheckpointError

__all__ = ["WireValue", "float_of", "int_of", "map_of", "parts_of", "text_of", "wire_fields"]

WireValue = int | bytes
"""A varint, or the bytes of anything else: fixed 4 or 8, or a text, message or packed list."""

_VARINT_BYTES = 10


def wire_fields(data: bytes, origin: str) -> Iterator[tuple[int, WireValue]]:
    """Yield number and value of every field of a message, in the order written.

    Raises CheckpointError for bytes that are no message; `origin` names their file.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at, origin)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at, origin)
            yield number, value
            continue
        if kind == 2:
            length, at = _varint(data, at, origin)
        else:
            length = {1: 8, 5: 4}.get(kind, len(data) + 1)  # kinds 3, 4: groups, used nowhere
        if number == 0 or length > len(data) - at:
            raise CheckpointError(f"{origin} is damaged or no model of DashInfer's: get it again")
        yield number, data[at : at + length]
        at += length


def parts_of(data: bytes, number: int, origin: str) -> Iterator[bytes]:
    """Yield the bytes of every field `number` of a message."""
    for found, value in wire_fields(data, origin):
        if found == number:
            yield _bytes(value, number, origin)


def map_of(data: bytes, number: int, origin: str) -> dict[str, bytes]:
    """Return a map with text keys, whose entries are messages of key 1 and value 2."""
    found: dict[str, bytes] = {}
    for entry in parts_of(data, number, origin):
        value = next(parts_of(entry, 2, origin), b"")
        found[text_of(entry, 1, origin)] = value
    return found


def text_of(data: bytes, number: int, origin: str) -> str:
    """Return the last text of field `number`, "" where there is none."""
    return ([b"", *parts_of(data, number, origin)][-1]).decode("utf-8", "replace")


def int_of(data: bytes, number: int, origin: str) -> int:
    """Return the last integer of field `number`, 0 where there is none. Raises CheckpointError."""
    values = [0, *(value for found, value in wire_fields(data, origin) if found == number)]
    if not isinstance(values[-1], int):
        raise CheckpointError(f"{origin}: field {number} is no integer; get the file again")
    return values[-1]


def float_of(data: bytes, number: int, origin: str) -> float:
    """Return the last 4-byte float of field `number`, 0 where there is none.

    Raises CheckpointError.
    """
    value = [b"\0\0\0\0", *parts_of(data, number, origin)][-1]
    if len(value) != 4:
        raise CheckpointError(f"{origin}: field {number} is no float; get the file again")
    return float(struct.unpack("<f", value)[0])


def _bytes(value: WireValue, number: int, origin: str) -> bytes:
    if isinstance(value, int):
        raise CheckpointError(f"{origin}: field {number} is an integer; get the file again")
    return value


def _varint(data: bytes, at: int, origin: str) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise CheckpointError(f"{origin} is damaged or no model of DashInfer's: get it again")
