"""What a user calls MODEL, as a path on this machine; opens nothing."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dashinfer_lab.config import cache_root, expanded
from dashinfer_lab.errors import HubError
from dashinfer_lab.hub.embedded import EMBEDDED_MODELS, Progress, fetch_embedded
from dashinfer_lab.hub.huggingface_source import HuggingFaceClient
from dashinfer_lab.hub.model_id import HubId, parse_hub_id
from dashinfer_lab.hub.modelscope_source import ModelScopeClient
from dashinfer_lab.hub.snapshots import fetch_snapshot, read_mark

__all__ = ["cached_snapshots", "resolve"]

_MARKS = ("*.dimodel", "config.json", "*.safetensors", "*.gguf", "*.bin")
_FORMS = (
    "the directory of a checkpoint (config.json and safetensors files, or DashInfer's .dimodel and "
    ".ditensors) or of a converted model, a GGUF file, a ModelScope id (owner/name or "
    "owner/name@revision), an id of Hugging Face (hf:owner/name), the name that `list` shows "
    "of a conversion, or an embedded model's name"
)


def resolve(model: str | Path, progress: Progress | None = None, *, refresh: bool = False) -> Path:
    """Return the converted model, checkpoint directory or GGUF file that `model` names.

    What is on disk under that path comes first, then what the cache has converted under that name.
    Embedded models and those of hubs are fetched into the cache where they are not there, with
    `progress` told; `refresh` asks the hub for a newer state of one that is. Raises HubError.
    """
    try:
        text = os.fspath(model)
        path = expanded(text)
    except TypeError as error:
        raise HubError(f"{model!r:.200} is no model: give {_FORMS}") from error
    try:
        if text and path.is_file():
            return path
        is_directory = bool(text) and path.is_dir()
    except (OSError, ValueError) as error:
        raise HubError(f"{text!r:.200} is no model: {error}") from error
    if is_directory and any(True for mark in _MARKS for _ in path.glob(mark)):
        return path
    if text in EMBEDDED_MODELS:
        return fetch_embedded(text, progress)
    conversion = _conversion(text)
    if conversion is not None:
        return conversion
    hub_id = parse_hub_id(text)
    if is_directory:
        raise HubError(
            f"{path} holds no model: neither a converted one (.dimodel) nor config.json with "
            "safetensors files nor a GGUF file"
            + (f". Rename it if you mean the hub's model {hub_id}" if hub_id else "")
        )
    if hub_id is None:
        raise HubError(
            f"no model {text!r:.200}: there is no such file or directory{_near(text) or '.'} "
            f"Give {_FORMS} ({', '.join(EMBEDDED_MODELS)})"
        )
    return _fetched(hub_id, progress, refresh=refresh)


def _conversion(name: str) -> Path | None:
    """The converted model that the cache has under that name."""
    directory = cache_root() / "conversions" / name
    is_name = bool(name) and Path(name).name == name
    return directory if is_name and any(directory.glob("*.dimodel")) else None


def cached_snapshots() -> Iterator[tuple[str, Path]]:
    """Yield the id and directory of every model of a hub that is complete in the cache."""
    for directory in sorted((cache_root() / "models").glob("*/snapshots/*")):
        mark = read_mark(directory)
        if mark is not None:
            yield mark.source, directory


def _fetched(model: HubId, progress: Progress | None, *, refresh: bool) -> Path:
    client = HuggingFaceClient() if model.hub == "huggingface" else ModelScopeClient()
    try:
        return fetch_snapshot(client, model, progress, refresh=refresh)
    except HubError as error:
        hint = _near(str(model))
        if not hint:
            raise
        raise type(error)(f"{str(error).rstrip('.')}{hint}") from error


def _near(text: str) -> str:
    """Name what was perhaps meant: an embedded or cached model, or a path beside the one given."""
    known = [*EMBEDDED_MODELS, *(source for source, _ in cached_snapshots())]
    path = expanded(text)
    with suppress(OSError, ValueError):  # no such place, or no name for one
        known += [str(path.with_name(each.name)) for each in path.parent.iterdir() if path.name]
    found = [name for name in difflib.get_close_matches(text, known, 3, 0.8) if name != text]
    return f". Did you mean {' or '.join(found)}?" if found else ""
