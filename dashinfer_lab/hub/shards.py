"""Which safetensors file of a directory holds which tensor; reads headers, no weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.files import confined, read_json_object
from dashinfer_lab.hub.safetensors_header import StoredTensor, read_safetensors_header

__all__ = ["ShardedTensor", "find_tensors"]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class ShardedTensor:
    """A stored tensor and the file that holds it."""

    path: Path
    stored: StoredTensor


def find_tensors(directory: Path) -> dict[str, ShardedTensor]:
    """Return every tensor of the checkpoint in `directory` by its stored name.

    Tensors that the index leaves out are among them. Raises CheckpointError where a shard is
    missing, lies outside the directory or lacks a tensor that the index promises, where two shards
    hold a tensor of which the index says nothing, and where there is a whole file, too.
    """
    if (directory / _INDEX).exists():
        return _indexed(directory)
    files = sorted(path.name for path in directory.glob("*.safetensors"))
    if _SINGLE not in files and len(files) > 1:
        raise CheckpointError(
            f"{directory} holds {len(files)} safetensors files and no {_INDEX}. Download the "
            "index, or leave one file."
        )
    if not files:
        raise CheckpointError(f"{directory} holds no safetensors file. {_pickle_hint(directory)}")
    path = confined(directory, _SINGLE if _SINGLE in files else files[0])
    return {name: ShardedTensor(path, it) for name, it in read_safetensors_header(path).items()}


def _indexed(directory: Path) -> dict[str, ShardedTensor]:
    weight_map = _weight_map(directory)
    named = frozenset(weight_map)
    paths = {name: confined(directory, name) for name in dict.fromkeys(weight_map.values())}
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        held = Counter(weight_map.values())
        listed = ", ".join(f"{name} ({held[name]} tensors)" for name in missing)
        raise CheckpointError(
            f"{directory}: {len(missing)} of {len(paths)} files that {_INDEX} names are missing: "
            f"{listed}. Download them."
        )
    headers = {name: read_safetensors_header(path) for name, path in paths.items()}
    absent = [tensor for tensor, name in weight_map.items() if tensor not in headers[name]]
    if absent:
        raise CheckpointError(
            f"{directory}: {_INDEX} places {len(absent)} tensors in files that lack them, first "
            f"{absent[0]!r} in {weight_map[absent[0]]}. The files do not belong together: download "
            "all of them again."
        )
    if _SINGLE not in paths and (directory / _SINGLE).exists():
        raise CheckpointError(
            f"{directory} holds {_SINGLE} beside {_INDEX} and its files, which may be another "
            "model's: leave those that are meant"
        )
    for name, header in headers.items():
        for tensor in header:
            other = weight_map.setdefault(tensor, name)
            if other != name and tensor not in named:
                raise CheckpointError(
                    f"{directory}: {other} and {name} hold {tensor!r:.200}, and {_INDEX} names "
                    "neither. The files do not belong together: download all of them again."
                )
    return {
        tensor: ShardedTensor(paths[name], headers[name][tensor])
        for tensor, name in weight_map.items()
    }


def _weight_map(directory: Path) -> dict[str, str]:
    found = read_json_object(confined(directory, _INDEX)).get("weight_map")
    pairs = cast("Mapping[str, object]", found) if isinstance(found, dict) else {}
    weight_map = {tensor: name for tensor, name in pairs.items() if isinstance(name, str)}
    if not weight_map or len(weight_map) != len(pairs):
        raise CheckpointError(
            f"{directory / _INDEX} has no weight_map of tensor names to file names"
        )
    for name in weight_map.values():
        if not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{directory / _INDEX} names {name!r}; only safetensors files are read"
            )
    return weight_map


def _pickle_hint(directory: Path) -> str:
    pickles = sorted(
        path.name for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in directory.glob(kind)
    )
    if not pickles:
        return "Give a directory with model.safetensors, or a GGUF file."
    return (
        f"{pickles[0]} is a pickle, which can run code when it is loaded: it is refused. Use the "
        "model's safetensors files. If you trust this one, load it with transformers yourself and "
        "give LLM the model, or what its save_pretrained writes."
    )
