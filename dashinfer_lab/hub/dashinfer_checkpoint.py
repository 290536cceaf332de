"""Weights of DashInfer's .dimodel and .ditensors under Hugging Face's names, read by rows.

A16W8 weights are read as the float32 that they stand for: (q - zero_point) · scale, by groups of K.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.checkpoint import bytes_by_type, row_range
from dashinfer_lab.hub.dashinfer_config import config_of, is_config, read_family
from dashinfer_lab.hub.dashinfer_names import NAMES, StoredWeight, stored_weights
from dashinfer_lab.hub.dimodel import DiModel, read_dimodel
from dashinfer_lab.hub.ditensors import DiTensor, is_ditensors, read_ditensors
from dashinfer_lab.hub.files import (
    confined,
    read_bytes_at,
    read_json_object,
    require_file,
    sample_bytes,
)
from dashinfer_lab.hub.snapshots import read_mark
from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tensor import TensorInfo, numpy_dtype

__all__ = ["DashInferCheckpoint", "dashinfer_files"]

_BAND_BYTES: Final = 32 << 20
_BANDS_KEPT: Final = 2
_CODES: Final = ("uint8", "int8")
_COMPARED_ROWS: Final = 4096

Band = tuple[str, int]
"""A stored matrix, and which of its bands of columns."""


def dashinfer_files(directory: Path) -> tuple[Path, Path] | None:
    """Return the two files of DashInfer's model in `directory`, None where there are none.

    Raises CheckpointError for several models, or for one without its weights.
    """
    models = sorted(directory.glob("*.dimodel"))
    if len(models) > 1:
        listed = ", ".join(path.name for path in models)
        raise CheckpointError(f"{directory} holds several .dimodel files: {listed}. Keep one.")
    if not models:
        return None
    weights = confined(directory, f"{models[0].stem}.ditensors")
    if not weights.is_file():
        raise CheckpointError(f"{directory} holds {models[0].name}, but no {weights.name}")
    return confined(directory, models[0].name), weights


class DashInferCheckpoint:
    """A directory with DashInfer's two files, open for reading; a context manager.

    Columns of its matrices are rows of ours: a band of them is read at a time and kept for the rows
    that follow.
    """

    def __init__(self, directory: Path, files: tuple[Path, Path]) -> None:
        model_path, self._path = files
        self._directory = directory.resolve()
        self._mark = read_mark(self._directory)
        for path in files:
            require_file(path)
        if not is_ditensors(self._path):
            raise CheckpointError(f"{self._path} is not DashInfer's: its first bytes differ")
        model = read_dimodel(model_path)
        self._names = NAMES[read_family(model)]
        self._tensors = read_ditensors(self._path)
        _require_digest(self._path, model)
        infos = {name: tensor.info for name, tensor in self._tensors.items()}
        self._weights = stored_weights(infos, self._names, model.num_heads, model.num_kv_heads)
        self._groups = {
            f"{operator.name}.weight": operator.integer("GroupSize")
            for operator in model.operators
            if operator.kind == "GemmA16W8"
        }
        self._bands: dict[Band, NDArray[Any]] = {}
        self._described = model_path.read_bytes() + repr(sorted(self._tensors.items())).encode()
        self._descriptor: int | None = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._config = self._read_config(model)
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> Mapping[str, object]:
        """The config.json beside the files, else one made of what DashInfer's file says."""
        return self._config

    @property
    def source(self) -> str:
        """Name of the directory, or of the hub's model if it is a snapshot."""
        return self._directory.name if self._mark is None else self._mark.source

    @property
    def revision(self) -> str:
        """The hub's revision of a snapshot, else a fingerprint.

        Of model, tensor table and samples of every tensor.
        """
        if self._mark is not None:
            return self._mark.revision
        digest = hashlib.sha256(self._described)
        for tensor in self._tensors.values():
            place = tensor.offset, tensor.info.num_bytes
            digest.update(sample_bytes(self._open(), *place, self._path))
        return digest.hexdigest()

    @property
    def licence(self) -> str | None:
        """None: the files do not say."""
        return None

    def names(self) -> Sequence[str]:
        """Names of the weights in Hugging Face's spelling, in the file's order."""
        return list(self._weights)

    def stored_bytes(self) -> Mapping[str, int]:
        """Return the bytes of the weights by element type as stored, most first."""
        infos = (tensor.info for tensor in self._tensors.values())
        return bytes_by_type((info.dtype, info.num_bytes) for info in infos)

    def info(self, name: str) -> TensorInfo:
        """Return the shape of `name`, and its element type: float32 for quantised weights."""
        weight = self._weight(name)
        stored = self._tensor(weight.stored).info
        inner = stored.shape[:1] if weight.is_transposed else stored.shape[1:]
        is_quantised = weight.stored in self._groups
        return TensorInfo((weight.count, *inner), "float32" if is_quantised else stored.dtype)

    def read(self, name: str, rows: slice | None = None) -> NDArray[Any]:
        """Read rows [start, stop) of `name` into a fresh array; codes are dequantised."""
        weight = self._weight(name)
        start, stop = row_range(self.info(name).shape, rows)
        first, last = weight.first + start, weight.first + stop
        tensor = self._tensor(weight.stored)
        if not weight.is_transposed:
            return self._stored_rows(tensor, first, last)
        if weight.stored in self._groups:
            return np.ascontiguousarray(self._dequantised(weight, first, last).T)
        return np.ascontiguousarray(self._columns(weight.stored, first, last).T)

    def write_tokenizer(self, directory: Path) -> None:
        """Copy the tokenizer that lies beside the files."""
        copy_tokenizer(self._directory, self._config, directory)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._bands.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> DashInferCheckpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_config(self, model: DiModel) -> Mapping[str, object]:
        path = confined(self._directory, "config.json")
        beside = read_json_object(path) if path.is_file() else {}
        is_original = is_config(beside)
        shapes = {name: self.info(name) for name in self._weights}
        is_tied = not is_original and self._is_tied()
        return config_of(model, shapes, beside if is_original else None, is_tied=is_tied)

    def _is_tied(self) -> bool:
        """Whether the head holds the embedding once more; DashInfer stores it twice."""
        embedding, head = f"{self._names.embedding}.weight", f"{self._names.head}.weight"
        if embedding not in self._weights or head not in self._weights:
            return head not in self._weights
        info = self.info(embedding)
        if self.info(head) != info:
            return False
        starts = range(0, info.shape[0], _COMPARED_ROWS)
        blocks = (slice(start, start + _COMPARED_ROWS) for start in starts)
        return all(np.array_equal(self.read(head, it), self.read(embedding, it)) for it in blocks)

    def _weight(self, name: str) -> StoredWeight:
        if name not in self._weights:
            raise CheckpointError(f"{self._path} holds no tensor {name!r:.200}")
        return self._weights[name]

    def _tensor(self, stored: str) -> DiTensor:
        if stored not in self._tensors:
            raise CheckpointError(f"{self._path} holds no tensor {stored!r:.200}: get it again")
        return self._tensors[stored]

    def _stored_rows(self, tensor: DiTensor, first: int, last: int) -> NDArray[Any]:
        """Read rows of the outermost axis as they are stored."""
        shape, inner = tensor.info.shape, tensor.info.shape[1:]
        row_bytes = tensor.info.num_bytes // max(1, shape[0] if shape else 1)
        offset = tensor.offset + first * row_bytes
        stored = self._bytes(offset, (last - first) * row_bytes)
        return stored.view(numpy_dtype(tensor.info.dtype)).reshape(
            (last - first, *inner) if shape else ()
        )

    def _columns(self, stored: str, first: int, last: int) -> NDArray[Any]:
        """Return columns [first, last) of a stored matrix, [K, last - first]."""
        info = self._tensor(stored).info
        column_bytes = info.num_bytes // max(1, info.shape[1])
        width = max(1, _BAND_BYTES // max(1, column_bytes))
        parts: list[NDArray[Any]] = []
        for index in range(first // width, -(-last // width)):
            begin = index * width
            band = self._band((stored, index), width)
            parts.append(band[:, max(0, first - begin) : last - begin])
        return np.concatenate(parts, axis=1) if parts else self._band((stored, 0), width)[:, :0]

    def _band(self, key: Band, width: int) -> NDArray[Any]:
        """Read a band of columns, or take it from those read last."""
        if key in self._bands:
            return self._bands[key]
        tensor = self._tensor(key[0])
        (num_rows, num_columns), dtype = tensor.info.shape, numpy_dtype(tensor.info.dtype)
        first = key[1] * width
        last = min(first + width, num_columns)
        while len(self._bands) >= _BANDS_KEPT:
            del self._bands[next(iter(self._bands))]
        if last - first == num_columns:
            band = self._stored_rows(tensor, 0, num_rows)
        else:
            band = np.empty((num_rows, last - first), dtype)
            for row in range(num_rows):
                offset = tensor.offset + (row * num_columns + first) * dtype.itemsize
                band[row] = self._bytes(offset, (last - first) * dtype.itemsize).view(dtype)
        self._bands[key] = band
        return band

    def _dequantised(self, weight: StoredWeight, first: int, last: int) -> NDArray[np.float32]:
        """Return columns as float32: (q - zero_point) · scale."""
        codes = self._columns(weight.stored, first, last)
        scale = self._columns(f"{weight.stored}.scale", first, last).astype(np.float32)
        zero = self._columns(f"{weight.stored}.zero_point", first, last).astype(np.float32)
        group = self._groups[weight.stored] or len(codes)
        if codes.dtype.name not in _CODES or len(scale) != len(zero) or group < 1:
            raise CheckpointError(f"{self._path}: {weight.stored!r:.200} is no A16W8 weight")
        if len(scale) != -(-len(codes) // group):
            raise CheckpointError(
                f"{self._path}: {weight.stored!r:.200} has {len(codes)} inputs in groups of "
                f"{group}, but {len(scale)} scales: get it again"
            )
        of_row = np.arange(len(codes)) // group
        return (codes.astype(np.float32) - zero[of_row]) * scale[of_row]

    def _bytes(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        return read_bytes_at(self._open(), offset, num_bytes, self._path)

    def _open(self) -> int:
        if self._descriptor is None:
            raise CheckpointError(f"{self._path} was closed; open the checkpoint again")
        return self._descriptor


def _require_digest(path: Path, model: DiModel) -> None:
    """Refuse weights other than those that the model was serialised with."""
    if model.digest is None:
        return
    with path.open("rb") as file:
        begun = file.read(min(model.digest.num_bytes, path.stat().st_size))
    if hashlib.md5(begun, usedforsecurity=False).hexdigest() != model.digest.md5:
        raise CheckpointError(
            f"{path} is damaged, or not what its .dimodel was written with: get both again"
        )
