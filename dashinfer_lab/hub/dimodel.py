"""DashInfer's .dimodel: what it says of a model and of its operators; reads no weight.

Source: allspark.proto of DashInfer 1.3.0 (TransformerProto, ConfigProto, OperatorProto).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.files import require_file
from dashinfer_lab.hub.wire_format import float_of, int_of, map_of, parts_of, text_of

__all__ = ["DiModel", "DiOperator", "WeightsDigest", "read_dimodel"]

_LIMIT_BYTES: Final = 64 << 20
_COUNT_LIMIT: Final = 1 << 16
_ACTIVATIONS: Final = {1: "tanh", 2: "gelu", 3: "gelu_pytorch_tanh", 4: "relu", 5: "silu"}


class WeightsDigest(NamedTuple):
    """MD5 of the first `num_bytes` of the weights' file."""

    num_bytes: int
    md5: str


@dataclass(frozen=True, slots=True)
class DiOperator:
    """An operator of a graph; attributes are raw little-endian scalars."""

    kind: str
    name: str
    attributes: Mapping[str, bytes]

    def integer(self, name: str) -> int | None:
        """An attribute of 4 or 8 bytes as an integer; None where it is absent or of other size."""
        value = self.attributes.get(name, b"")
        return int.from_bytes(value, "little", signed=True) if len(value) in (4, 8) else None

    def real(self, name: str) -> float | None:
        """An attribute of 4 bytes as a float; None where it is absent or of other size."""
        value = self.attributes.get(name, b"")
        return float(struct.unpack("<f", value)[0]) if len(value) == 4 else None


@dataclass(frozen=True, slots=True)
class DiModel:
    """A model as DashInfer's serialiser described it.

    build: arguments of the serialisation, as text.  activation: "" for one it does not name.
    """

    model_type: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    norm_eps: float
    activation: str
    build: Mapping[str, str]
    operators: tuple[DiOperator, ...]
    digest: WeightsDigest | None


def read_dimodel(path: Path) -> DiModel:
    """Read the file. Raises CheckpointError for what is damaged or not DashInfer's."""
    data, origin = _content(path), str(path)
    config = b"".join(parts_of(data, 2, origin))
    meta = b"".join(parts_of(data, 8, origin))
    build = map_of(meta, 3, origin)
    texts = {name: value.decode("utf-8", "replace") for name, value in build.items()}
    operators = tuple(
        _operator(part, origin)
        for graph in map_of(data, 6, origin).values()
        for part in parts_of(graph, 3, origin)
    )
    num_heads = _count(config, 3, origin)
    model = DiModel(
        model_type=texts.get("model_type") or text_of(data, 1, origin),
        num_layers=_count(config, 6, origin),
        num_heads=num_heads,
        num_kv_heads=_count(config, 16, origin, default=num_heads),
        norm_eps=float_of(config, 2, origin),
        activation=_ACTIVATIONS.get(int_of(config, 12, origin), ""),
        build=texts,
        operators=operators,
        digest=_digest(meta, origin),
    )
    if not model.model_type or not operators:
        raise CheckpointError(f"{path} is damaged or no model of DashInfer's: get it again")
    return model


def _count(config: bytes, number: int, origin: str, default: int = 0) -> int:
    """A size that is at least 1; `default` where none was written."""
    value = int_of(config, number, origin) or default
    if not 1 <= value <= _COUNT_LIMIT:
        raise CheckpointError(f"{origin}: a size (field {number}) is {value}; get the file again")
    return value


def _content(path: Path) -> bytes:
    try:
        require_file(path)
        if path.stat().st_size > _LIMIT_BYTES:
            raise CheckpointError(f"{path} is larger than {_LIMIT_BYTES} bytes: no .dimodel is")
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def _operator(part: bytes, origin: str) -> DiOperator:
    return DiOperator(text_of(part, 1, origin), text_of(part, 2, origin), map_of(part, 3, origin))


def _digest(meta: bytes, origin: str) -> WeightsDigest | None:
    """The digest that was written; its length is a packed list of one varint."""
    told = b"".join(parts_of(meta, 2, origin))
    length = int_of(b"\x08" + next(parts_of(told, 2, origin), b"\0"), 1, origin)
    if text_of(told, 1, origin) != "md5" or not length:
        return None
    return WeightsDigest(length, text_of(told, 3, origin))
