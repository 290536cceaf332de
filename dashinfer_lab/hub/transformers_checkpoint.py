"""A transformers model in memory, read as a checkpoint; imports neither torch nor transformers.

The caller has both: what is needed here are methods of the objects it hands over.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.checkpoint import bytes_by_type, row_range
from dashinfer_lab.hub.files import write_json
from dashinfer_lab.hub.safetensors_checkpoint import canonical
from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tensor import TensorInfo

__all__ = ["TransformersCheckpoint", "is_transformers_model"]

_HEAD: Final = "lm_head.weight"
_AS_STORED: Final = ("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
_BLOCK_ELEMENTS: Final = 1 << 22


def is_transformers_model(model: object) -> bool:
    """Say whether `model` is an object with weights and a config, as transformers makes them."""
    return all(hasattr(model, name) for name in ("state_dict", "config"))


class TransformersCheckpoint:
    """A `PreTrainedModel`, and its tokenizer where one is given; a context manager.

    Weights are read from the model as they are at that time: convert before training goes on.
    """

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        if not is_transformers_model(model):
            raise CheckpointError(
                f"{type(model).__name__} is no transformers model: it lacks state_dict or config. "
                "Give what AutoModelForCausalLM.from_pretrained returns."
            )
        if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
            raise CheckpointError(
                f"{type(tokenizer).__name__} is no transformers tokenizer: it lacks "
                "save_pretrained. Give what AutoTokenizer.from_pretrained returns."
            )
        self._config: dict[str, object] = {
            name: value for name, value in model.config.to_dict().items() if value is not None
        }
        self._tensors: dict[str, Any] = canonical(dict(model.state_dict()))
        if self._config.get("tie_word_embeddings"):
            self._tensors.pop(_HEAD, None)  # the same memory as the embedding
        self._refuse_absent()
        self._name = str(getattr(model, "name_or_path", "") or type(model).__name__)
        self._generation: Any = getattr(model, "generation_config", None)
        self._tokenizer = tokenizer
        self._revision: str | None = None

    @property
    def config(self) -> Mapping[str, object]:
        """The model's config, as config.json would spell it."""
        return self._config

    @property
    def source(self) -> str:
        """What the model was loaded from, or its class."""
        return self._name

    @property
    def revision(self) -> str:
        """A digest of config, tokenizer and weights: training changes it."""
        if self._revision is None:
            digest = hashlib.sha256(repr(sorted(self._config.items())).encode())
            with tempfile.TemporaryDirectory() as folder:
                self.write_tokenizer(Path(folder))
                for path in sorted(Path(folder).iterdir()):
                    digest.update(path.name.encode() + path.read_bytes())
            for name in self._tensors:
                digest.update(repr((name, self.info(name))).encode())
                for rows in self._row_blocks(name):
                    digest.update(np.ascontiguousarray(self.read(name, rows)).view(np.uint8).data)
            self._revision = digest.hexdigest()
        return self._revision

    @property
    def licence(self) -> str | None:
        """None: a model in memory does not say."""
        return None

    def names(self) -> Sequence[str]:
        """Names of the weights, with the prefix `model.` where the model lacks it."""
        return list(self._tensors)

    def stored_bytes(self) -> Mapping[str, int]:
        """Return the bytes of the weights by element type, most first."""
        infos = (self.info(name) for name in self._tensors)
        return bytes_by_type((info.dtype, info.num_bytes) for info in infos)

    def info(self, name: str) -> TensorInfo:
        """Return shape and element type of what `read` gives for `name`."""
        tensor = self._tensor(name)
        stored = str(tensor.dtype).rpartition(".")[2]
        return TensorInfo(tuple(tensor.shape), stored if stored in _AS_STORED else "float32")

    def read(self, name: str, rows: slice | None = None) -> np.ndarray[Any, Any]:
        """Copy rows [start, stop) of `name` out of the model, from whichever device."""
        tensor, info = self._tensor(name).detach(), self.info(name)
        if info.shape:
            start, stop = row_range(info.shape, rows)
            tensor = tensor[start:stop]
        tensor = tensor.to("cpu")
        if info.dtype == "bfloat16":  # NumPy's side of torch knows none; each fits float32 exactly
            return tensor.float().numpy().astype(ml_dtypes.bfloat16)
        if info.dtype == "float32":
            tensor = tensor.float()
        return np.array(tensor.numpy())

    def write_tokenizer(self, directory: Path) -> None:
        """Write the tokenizer as it saves itself, and the generation config.

        Raises CheckpointError for one that saves no tokenizer.json.
        """
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder)
            if self._tokenizer is not None:
                self._tokenizer.save_pretrained(folder)
                if not (saved / "tokenizer.json").is_file():
                    raise CheckpointError(
                        f"{type(self._tokenizer).__name__} saves no tokenizer.json: load the "
                        "tokenizer with use_fast=True"
                    )
            if self._generation is not None:
                write_json(saved / "generation_config.json", self._generation.to_diff_dict())
            copy_tokenizer(saved, self._config, directory)

    def close(self) -> None:
        """Let go of the model; closing twice is allowed."""
        self._tensors = {}

    def __enter__(self) -> TransformersCheckpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tensor(self, name: str) -> Any:
        if name not in self._tensors:
            raise CheckpointError(f"{self._name} holds no tensor {name!r}, or was closed")
        return self._tensors[name]

    def _row_blocks(self, name: str) -> Iterator[slice | None]:
        shape = self.info(name).shape
        if not shape:
            yield None
            return
        step = max(1, _BLOCK_ELEMENTS * shape[0] // max(1, self.info(name).num_elements))
        for start in range(0, shape[0], step):
            yield slice(start, start + step)

    def _refuse_absent(self) -> None:
        absent = [name for name, tensor in self._tensors.items() if tensor.device.type == "meta"]
        if absent:
            raise CheckpointError(
                f"{len(absent)} weights, first {absent[0]!r}, are not in memory (device 'meta'): "
                "load the model without device_map, or without offloading."
            )
