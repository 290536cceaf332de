"""Converted models with lies in them, whose digests are right again."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

__all__ = ["Forgery"]

_NUMBERS = (
    -(1 << 31), -1, 0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 83, 84, 85, 256, 511, 512, 513, 4096,
    1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1,
)  # fmt: skip
_FRACTIONS = (0.0, -1.0, math.nan, math.inf, 1e30, 1e-30)
_ONNX_TYPES = {"F32": 1, "U8": 2, "F16": 10, "BF16": 16}
_BYTES = {"F32": 4, "U8": 1, "F16": 2, "BF16": 2}


class Forgery:
    """A copy of an artifact, changed at random and written so that its parts agree again."""

    def __init__(self, original: Path, directory: Path, seed: int) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(original, directory)
        self._random = random.Random(seed)
        self._graph_path = directory / "model.dimodel"
        self._weights_path = directory / "model.ditensors"
        self._model = onnx.load(self._graph_path, load_external_data=False)
        content = self._weights_path.read_bytes()
        room = int.from_bytes(content[:8], "little")
        self._header: dict[str, Any] = json.loads(content[8 : 8 + room])
        self._data = bytearray(content[8 + room :])
        self._config: dict[str, Any] = json.loads(self._header["__metadata__"]["config"])
        self._room = room

    def write(self) -> bool:
        """Change one to three things and write both files; False where the header has no room."""
        changes: tuple[Callable[[], None], ...] = (
            self._size, self._attribute, self._leave_out, self._other_input, self._swap_weights,
            self._retype, self._swap_places, self._reorder, self._repeat, self._other_operator,
            self._noise,
        )  # fmt: skip
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            self._random.choice(changes)()
        graph = self._model.SerializeToString()
        metadata = self._header["__metadata__"]
        metadata["config"] = json.dumps(self._config)
        metadata["graph_sha256"] = hashlib.sha256(graph).hexdigest()
        text = json.dumps(self._header, separators=(",", ":")).encode()
        if len(text) > self._room:
            return False
        self._graph_path.write_bytes(graph)
        prefix = self._room.to_bytes(8, "little")
        self._weights_path.write_bytes(prefix + text.ljust(self._room) + self._data)
        return True

    @property
    def _nodes(self) -> Any:
        return self._model.graph.node

    def _node(self) -> Any:
        return self._nodes[self._random.randrange(len(self._nodes))]

    def _two_weights(self) -> list[Any]:
        return self._random.sample(list(self._model.graph.initializer), 2)

    def _size(self) -> None:
        sizes = [key for key, value in self._config.items() if type(value) is int]
        self._config[self._random.choice(sizes)] = self._random.choice(_NUMBERS)

    def _attribute(self) -> None:
        attributes = [each for node in self._nodes for each in node.attribute]
        chosen = self._random.choice(attributes)
        if chosen.type == onnx.AttributeProto.INT:
            chosen.i = self._random.choice(_NUMBERS)
        elif chosen.type == onnx.AttributeProto.FLOAT:
            chosen.f = self._random.choice(_FRACTIONS)
        elif chosen.type == onnx.AttributeProto.INTS:
            chosen.ints[:] = [self._random.choice(_NUMBERS) for _ in chosen.ints]

    def _leave_out(self) -> None:
        del self._nodes[self._random.randrange(len(self._nodes))]

    def _other_input(self) -> None:
        node, graph = self._node(), self._model.graph
        values = [*graph.input, *graph.initializer]
        names = [it.name for it in values] + [it for made in self._nodes for it in made.output]
        node.input[self._random.randrange(len(node.input))] = self._random.choice(names)

    def _swap_weights(self) -> None:
        first, second = (it.name for it in self._two_weights())
        other = {first: second, second: first}
        for node in self._nodes:
            node.input[:] = [other.get(name, name) for name in node.input]

    def _retype(self) -> None:
        chosen = self._random.choice(self._model.graph.initializer)
        entry = self._header[chosen.name]
        num_bytes = math.prod(entry["shape"]) * _BYTES[entry["dtype"]]
        entry["dtype"] = self._random.choice(tuple(_BYTES))
        entry["shape"] = [num_bytes // _BYTES[entry["dtype"]]]
        chosen.data_type, chosen.dims[:] = _ONNX_TYPES[entry["dtype"]], entry["shape"]

    def _swap_places(self) -> None:
        """Let two weights lie, with type and shape, where the other did."""
        first, second = self._two_weights()
        names, kept = (first.name, second.name), copy.deepcopy(first)
        header = self._header
        header[names[0]], header[names[1]] = header[names[1]], header[names[0]]
        first.CopyFrom(second)
        second.CopyFrom(kept)
        first.name, second.name = names

    def _reorder(self) -> None:
        first, second = self._random.sample(range(len(self._nodes)), 2)
        kept = copy.deepcopy(self._nodes[first])
        self._nodes[first].CopyFrom(self._nodes[second])
        self._nodes[second].CopyFrom(kept)

    def _repeat(self) -> None:
        repeated = copy.deepcopy(self._node())
        repeated.output[:] = [f"{name}.again" for name in repeated.output]
        self._nodes.append(repeated)

    def _other_operator(self) -> None:
        node, model = self._node(), self._node()
        node.op_type, node.domain = model.op_type, model.domain

    def _noise(self) -> None:
        for _ in range(20):
            at = self._random.randrange(len(self._data) // 4) * 4
            self._data[at : at + 4] = self._random.choice(
                (b"\xff" * 4, b"\0\0\xc0\x7f", self._random.randbytes(4))
            )
