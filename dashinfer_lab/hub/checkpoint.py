"""What a source of weights offers, whatever its file format; knows no format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dashinfer_lab.tensor import TensorInfo

__all__ = ["Checkpoint", "bytes_by_type", "row_range"]


class Checkpoint(Protocol):
    """Weights by name, the model's config and its tokenizer, read on demand."""

    @property
    def config(self) -> Mapping[str, object]:
        """The model's config in the spelling of Hugging Face's config.json."""
        ...

    @property
    def source(self) -> str:
        """Name of the model or its file, for people."""
        ...

    @property
    def revision(self) -> str:
        """The hub's revision where known, else a fingerprint of headers and samples."""
        ...

    @property
    def licence(self) -> str | None:
        """Licence the files declare, such as "apache-2.0"."""
        ...

    def names(self) -> Sequence[str]:
        """Names of the tensors, spelled as Hugging Face does, in the order stored."""
        ...

    def stored_bytes(self) -> Mapping[str, int]:
        """Return the bytes of the weights by element type as the files have it, most first."""
        ...

    def info(self, name: str) -> TensorInfo:
        """Return shape and element type of what `read` gives for `name`."""
        ...

    def read(self, name: str, rows: slice | None = None) -> np.ndarray[Any, Any]:
        """Read a tensor, or the rows [start, stop) of it, into a fresh array.

        Only the bytes of these rows are read and dequantised.
        """
        ...

    def write_tokenizer(self, directory: Path) -> None:
        """Write tokenizer.json, tokenizer_config.json and generation_config.json.

        A checkpoint without a tokenizer writes generation_config.json alone.
        """
        ...

    def close(self) -> None:
        """Close the files; closing twice is allowed."""
        ...

    def __enter__(self) -> Checkpoint: ...

    def __exit__(self, *_: object) -> None: ...


def bytes_by_type(tensors: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """Sum up the bytes of tensors, given as (element type, bytes); the largest sum first."""
    sums: dict[str, int] = {}
    for kind, num_bytes in tensors:
        sums[kind] = sums.get(kind, 0) + num_bytes
    return dict(sorted(sums.items(), key=lambda it: -it[1]))


def row_range(shape: Sequence[int], rows: slice | None) -> tuple[int, int]:
    """Return [start, stop) of the outermost axis that `rows` asks for.

    Raises ValueError for a step other than 1, or for rows of a scalar.
    """
    if rows is None:
        return 0, shape[0] if shape else 1
    if not shape:
        raise ValueError("a scalar has no rows")
    start, stop, step = rows.indices(shape[0])
    if step != 1:
        raise ValueError(f"rows must follow one another, not every {step}th")
    return start, max(start, stop)
