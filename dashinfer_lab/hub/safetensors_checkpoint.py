"""Weights of a directory in Hugging Face's layout, read by rows; knows no architecture."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.checkpoint import bytes_by_type, row_range
from dashinfer_lab.hub.files import confined, read_bytes_at, read_json_object, sample_bytes
from dashinfer_lab.hub.shards import ShardedTensor, find_tensors
from dashinfer_lab.hub.snapshots import read_mark
from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tensor import TensorInfo, numpy_dtype

__all__ = ["SafetensorsCheckpoint", "canonical"]

T = TypeVar("T")

_PREFIX = "model."
_ROOTS = (_PREFIX, "transformer.")
_HEAD_PREFIX = "lm_head."
_BUFFER = re.compile(r".*\.rotary_(pos_)?emb\.(inv_freq|cos_cached|sin_cached)")
_README_BYTES = 1 << 14


class SafetensorsCheckpoint:
    """A directory of config.json and safetensors files, open for reading; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._mark = read_mark(self._directory)
        self._tensors = canonical(find_tensors(directory))
        self._config = read_json_object(confined(directory, "config.json"))
        self._descriptors: dict[Path, int] = {}
        self._closed = False

    @property
    def config(self) -> Mapping[str, object]:
        """Contents of config.json."""
        return self._config

    @property
    def source(self) -> str:
        """Name of the directory, or of the hub's model if it is a snapshot."""
        if self._mark is not None:
            return self._mark.source
        if self._directory.parent.name == "snapshots":
            return self._directory.parent.parent.name.removeprefix("models--").replace("--", "/")
        return self._directory.name

    @property
    def revision(self) -> str:
        """The hub's revision of a snapshot, else a fingerprint.

        Of config, tensor table and samples of every tensor.
        """
        if self._mark is not None:
            return self._mark.revision
        if self._directory.parent.name == "snapshots":
            return self._directory.name
        table = [(name, it.path.name, it.stored) for name, it in self._tensors.items()]
        digest = hashlib.sha256(repr((self._config, table)).encode())
        for it in self._tensors.values():
            place = it.stored.offset, it.stored.info.num_bytes
            digest.update(sample_bytes(self._descriptor(it.path), *place, it.path))
        return digest.hexdigest()

    @property
    def licence(self) -> str | None:
        """Licence named at the top of README.md."""
        path = confined(self._directory, "README.md")
        if not path.is_file():
            return None
        with path.open("rb") as file:
            text = file.read(_README_BYTES).decode("utf-8", "replace")
        front = re.match(r"---\s*\n(.*?)\n---", text, re.DOTALL)
        named = re.search(r"^license:\s*([\w.\-]+)\s*$", front[1], re.MULTILINE) if front else None
        return named[1] if named else None

    def names(self) -> Sequence[str]:
        """Names of the weights, with the prefix `model.` where files lack it."""
        return list(self._tensors)

    def stored_bytes(self) -> Mapping[str, int]:
        """Return the bytes of the weights by element type, most first."""
        infos = (self.info(name) for name in self._tensors)
        return bytes_by_type((info.dtype, info.num_bytes) for info in infos)

    def info(self, name: str) -> TensorInfo:
        """Return shape and stored element type of `name`."""
        return self._tensor(name).stored.info

    def read(self, name: str, rows: slice | None = None) -> np.ndarray[Any, Any]:
        """Read rows [start, stop) of `name` into a fresh array, elements as stored."""
        tensor = self._tensor(name)
        shape = tensor.stored.info.shape
        start, stop = row_range(shape, rows)
        row_bytes = tensor.stored.info.num_bytes // (shape[0] if shape else 1)
        stored = read_bytes_at(
            self._descriptor(tensor.path),
            tensor.stored.offset + start * row_bytes,
            (stop - start) * row_bytes,
            tensor.path,
        )
        values = stored.view(numpy_dtype(tensor.stored.info.dtype))
        return values.reshape((stop - start, *shape[1:]) if shape else ())

    def write_tokenizer(self, directory: Path) -> None:
        """Copy the tokenizer's files; the chat template and every EOS go into the two configs."""
        copy_tokenizer(self._directory, self._config, directory)

    def close(self) -> None:
        """Close the files; closing twice is allowed."""
        self._closed = True
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __enter__(self) -> SafetensorsCheckpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tensor(self, name: str) -> ShardedTensor:
        if name not in self._tensors:
            raise CheckpointError(f"{self._directory} holds no tensor {name!r}")
        return self._tensors[name]

    def _descriptor(self, path: Path) -> int:
        if self._closed:
            raise CheckpointError(f"{self._directory} was closed; open the checkpoint again")
        if path not in self._descriptors:
            self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptors[path]


def canonical(tensors: Mapping[str, T]) -> dict[str, T]:
    """Add the prefix `model.` where a checkpoint of the bare decoder lacks it; drop buffers."""
    weights = {name: tensor for name, tensor in tensors.items() if not _BUFFER.fullmatch(name)}
    if any(name.startswith(_ROOTS) for name in weights):
        return weights
    return {
        name if name.startswith(_HEAD_PREFIX) else _PREFIX + name: tensor
        for name, tensor in weights.items()
    }
