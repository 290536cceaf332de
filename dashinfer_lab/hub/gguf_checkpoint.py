"""Weights of a GGUF file under Hugging Face's names, dequantised row by row to float32.

Knows the file's conventions (names, row order); the architecture itself is `models`' business.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.checkpoint import bytes_by_type, row_range
from dashinfer_lab.hub.files import read_bytes_at, sample_bytes, write_json
from dashinfer_lab.hub.gguf_architectures import gguf_architecture
from dashinfer_lab.hub.gguf_config import head_counts, hugging_face_config, required_text
from dashinfer_lab.hub.gguf_header import GgufTensor, read_gguf_header
from dashinfer_lab.hub.gguf_rope import ROPE_FACTORS
from dashinfer_lab.hub.gguf_tokenizer import generation_config, tokenizer_config, tokenizer_json
from dashinfer_lab.hub.gguf_weights import GgufRows, GgufWeight, checkpoint_weights
from dashinfer_lab.tensor import TensorInfo

__all__ = ["GgufCheckpoint"]


class GgufCheckpoint:
    """A single GGUF file, open for reading; usable as a context manager."""

    def __init__(self, path: Path) -> None:
        header = read_gguf_header(path)
        self._path = path
        self._metadata = header.metadata
        architecture = gguf_architecture(required_text(header.metadata, "general.architecture"))
        if header.metadata.get("split.count", 1) not in (0, 1):
            raise UnsupportedModelError(
                f"{path} is one part of a split GGUF. Join the parts with llama-gguf-split --merge."
            )
        counts = head_counts(header.metadata)
        self._weights = checkpoint_weights(architecture, header.tensors, counts)
        self._tensors = header.tensors
        self._header_digest = header.fingerprint
        self._require_known_types()
        self._descriptor: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            factors = {name: self.read(name) for name in ROPE_FACTORS if name in self._weights}
            for name in factors:
                del self._weights[name]
            shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
            self._config = hugging_face_config(header.metadata, shapes, factors)
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> Mapping[str, object]:
        """Config synthesised from the metadata, in Hugging Face's spelling."""
        return self._config

    @property
    def source(self) -> str:
        """File name of the model."""
        return self._path.name

    @property
    def revision(self) -> str:
        """Fingerprint of metadata, tensor table, file size and samples of every tensor."""
        digest = hashlib.sha256(self._header_digest.encode())
        for tensor in self._tensors.values():
            digest.update(sample_bytes(self._open(), tensor.offset, tensor.num_bytes, self._path))
        return digest.hexdigest()

    @property
    def licence(self) -> str | None:
        """Licence named in the metadata."""
        licence = self._metadata.get("general.license")
        return licence if isinstance(licence, str) else None

    def names(self) -> Sequence[str]:
        """Names of the tensors in Hugging Face's spelling, in the file's order."""
        return list(self._weights)

    def stored_bytes(self) -> Mapping[str, int]:
        """Return the bytes of the weights by quantisation as GGUF names it, most first."""
        from gguf import GGMLQuantizationType

        return bytes_by_type(
            (GGMLQuantizationType(rows.tensor.quantization).name, rows.tensor.num_bytes)
            for weight in self._weights.values()
            for rows in weight.parts
        )

    def info(self, name: str) -> TensorInfo:
        """Return the shape of `name`; the element type is always float32."""
        return TensorInfo(self._weight(name).shape, "float32")

    def read(self, name: str, rows: slice | None = None) -> np.ndarray[Any, Any]:
        """Read and dequantise rows [start, stop) of `name` into a fresh float32 array."""
        weight = self._weight(name)
        start, stop = row_range(weight.shape, rows)
        found: list[np.ndarray[Any, Any]] = []
        before = 0
        for part in weight.parts:
            count = part.tensor.shape[0]
            first, last = max(start - before, 0), min(stop - before, count)
            if first < last:
                found.append(self._read_part(part, first, last))
            before += count
        if not found:
            return np.empty((0, *weight.shape[1:]), np.float32)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def write_tokenizer(self, directory: Path) -> None:
        """Write tokenizer.json, tokenizer_config.json and generation_config.json."""
        write_json(directory / "generation_config.json", generation_config(self._metadata))
        if "tokenizer.ggml.model" not in self._metadata:
            return
        write_json(directory / "tokenizer_config.json", tokenizer_config(self._metadata))
        write_json(directory / "tokenizer.json", tokenizer_json(self._metadata), indent=None)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> GgufCheckpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _weight(self, name: str) -> GgufWeight:
        if name not in self._weights:
            raise CheckpointError(f"{self._path} holds no tensor {name!r}")
        return self._weights[name]

    def _require_known_types(self) -> None:
        """Refuse a file before work starts: a row of zeros of each type is tried."""
        parts = [rows.tensor for weight in self._weights.values() for rows in weight.parts]
        for tensor in {each.quantization: each for each in parts}.values():
            self._dequantised(tensor, np.zeros((1, tensor.row_bytes), np.uint8))

    def _open(self) -> int:
        if self._descriptor is None:
            raise CheckpointError(f"{self._path} was closed; open the checkpoint again")
        return self._descriptor

    def _read_part(self, part: GgufRows, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Read rows [start, stop), at least one, as the checkpoint has them."""
        tensor = part.tensor
        order = self._stored_order(part, start, stop)
        first, last = (start, stop) if order is None else (order.min(), order.max() + 1)
        if len(tensor.shape) == 1:
            whole = self._dequantised(tensor, self._stored(tensor, 0, 1)).reshape(-1)
            values = whole[start:stop].copy() if order is None else whole[order]
        else:
            stored = self._stored(tensor, int(first), int(last))
            wanted = stored if order is None else stored[order - first]
            values = self._dequantised(tensor, wanted).reshape(stop - start, *tensor.shape[1:])
        return values - np.float32(part.added) if part.added else values

    def _stored(self, tensor: GgufTensor, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Read the bytes of rows [start, stop), one row each; a 1-D tensor is one row."""
        row_bytes = tensor.row_bytes * prod(tensor.shape[1:-1])
        return read_bytes_at(
            self._open(),
            tensor.offset + start * row_bytes,
            (stop - start) * row_bytes,
            self._path,
        ).reshape(stop - start, row_bytes)

    def _dequantised(
        self, tensor: GgufTensor, stored: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        kind = GGMLQuantizationType(tensor.quantization)
        try:
            return np.asarray(dequantize(stored.reshape(-1, tensor.row_bytes), kind), np.float32)
        except (NotImplementedError, KeyError) as error:  # so gguf says what it cannot dequantise
            raise UnsupportedModelError(
                f"{self._path}: {tensor.name!r} is stored as {kind.name}, which cannot be "
                "dequantised here. Use a Q8_0, Q4_1, Q4_0, F16 or F32 file."
            ) from error

    def _stored_order(
        self, part: GgufRows, start: int, stop: int
    ) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """Return where rows [start, stop) of a query or key weight lie, or None if in order.

        Heads whose rows are paired for interleaved rotation: row 2i + j of a head is the
        checkpoint's row j · head_dim/2 + i, j in {0, 1}.
        """
        if part.heads is None:
            return None
        num_heads, num_rows = self._config.get(part.heads), part.tensor.shape[0]
        if not isinstance(num_heads, int) or num_heads < 1 or num_rows % (2 * num_heads):
            raise CheckpointError(
                f"{self._path}: {part.tensor.name!r} has {num_rows} rows, which {num_heads!r} "
                "heads cannot share"
            )
        head_dim = num_rows // num_heads
        row = np.arange(start, stop)
        within = row % head_dim
        half = head_dim // 2
        return row - within + within % half * 2 + within // half
