"""Ids of one prompt, however a caller holds them: lists, NumPy, DLPack; knows no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import ConfigError, RequestError

__all__ = ["prompt_ids"]

_KNOWN = ("input_ids", "attention_mask")
_CPU = (1, 0)  # DLPack's device: kDLCPU, its first


class _Capsule:
    """A bare DLPack capsule, as torch.utils.dlpack.to_dlpack makes it, behind the protocol."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


def prompt_ids(inputs: Any) -> Sequence[int]:
    """Ids of `inputs`: `{"input_ids": ids}`, or the ids, of shape [n] or [1, n].

    ids: a list, a NumPy array, a DLPack capsule, or what offers DLPack, in memory of the CPU. An
    attention mask must be all ones. Raises RequestError, ConfigError for names that mean nothing.
    """
    if not isinstance(inputs, Mapping):
        return _row("input_ids", inputs).tolist()
    named = cast("Mapping[str, Any]", inputs)
    unknown = [key for key in named if key not in _KNOWN]
    if unknown:
        raise ConfigError(f"inputs {unknown!r:.200} mean nothing here; known are {_KNOWN}")
    if "input_ids" not in named:
        raise RequestError("the inputs have no input_ids")
    ids = _row("input_ids", named["input_ids"])
    if "attention_mask" in named:
        mask = _row("attention_mask", named["attention_mask"])
        if mask.shape != ids.shape or not np.all(mask == 1):
            raise RequestError(
                "attention_mask hides tokens, which is not possible: leave the padding away"
            )
    return ids.tolist()


def _row(name: str, value: Any) -> NDArray[Any]:
    array = _array(name, value)
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise RequestError(
            f"{name} has shape {list(array.shape)}: give [n] or [1, n], one request at a time"
        )
    if array.size and array.dtype.kind not in "iu":
        raise RequestError(f"{name} holds {array.dtype}: give whole numbers")
    return array


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        if type(value).__name__ == "PyCapsule":
            return np.from_dlpack(cast("Any", _Capsule(value)))
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError, OverflowError) as error:
        raise RequestError(
            f"{name}, of type {type(value).__name__}, is not understood: {error}. Give a list, a "
            "NumPy array or a tensor in memory of the CPU"
        ) from error
