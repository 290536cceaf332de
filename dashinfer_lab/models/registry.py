"""Finds the function that declares a model by its `model_type`; knows nothing of any model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.graph import GraphBuilder, ModelGraph, Value
from dashinfer_lab.hub.families import Family, add_family
from dashinfer_lab.quantize import Scheme

__all__ = [
    "ModelFunction",
    "SupportedModel",
    "build_graph",
    "describe_models",
    "register",
    "require_supported",
    "supported_models",
]

ModelFunction = Callable[[GraphBuilder, ModelConfig], Value]

_MODELS: dict[str, ModelFunction] = {}
_NOT_MODELS = {"__init__", "registry", "support"}


@dataclass(frozen=True, slots=True)
class SupportedModel:
    """An architecture, as a table of what is supported shows it."""

    model_type: str
    """`model_type` of its config.json."""
    architecture: str
    """`architectures` of its config.json."""
    description: str


def register(model: str | Family) -> Callable[[ModelFunction], ModelFunction]:
    """Declare the decorated function to build models of the `model_type` called `model`.

    A file of this package gives the name: `hub/families.py` has the family's line. Outside of it,
    say in a notebook, the line itself is given, and the family holds in this process; declared
    again, it takes the former's place. What was converted before stays as it was. Raises
    ConfigError where the package has a family of one of its names.
    """

    def declare(function: ModelFunction) -> ModelFunction:
        if isinstance(model, Family):
            add_family(model)
        _MODELS[model.model_type if isinstance(model, Family) else model] = function
        return function

    return declare


def supported_models() -> tuple[str, ...]:
    """Return every `model_type` that comes with the package: the file names of `models`."""
    files = Path(__file__).parent.glob("*.py")
    return tuple(sorted(file.stem for file in files if file.stem not in _NOT_MODELS))


def describe_models() -> tuple[SupportedModel, ...]:
    """Return every architecture as its own file introduces it: "Name (paper; Hugging Face Class)".

    Line 1 of a model's file is a table's row, so that no list beside it can be out of date.
    """
    return tuple(_described(model_type) for model_type in supported_models())


def _described(model_type: str) -> SupportedModel:
    module = import_module(f"dashinfer_lab.models.{model_type}")
    first = (module.__doc__ or "").splitlines()[0].partition("; knows")[0]
    description, _, architecture = first.rstrip(").").rpartition("; Hugging Face ")
    return SupportedModel(model_type, architecture, f"{description})")


def require_supported(model_type: str) -> None:
    """Raise UnsupportedModelError, naming what there is, for a `model_type` without a file here."""
    known = supported_models()
    if model_type not in known:
        raise UnsupportedModelError(
            f"model type {model_type!r} is not supported; this version runs {', '.join(known)}"
        )


def build_graph(config: ModelConfig, scheme: Scheme) -> ModelGraph:
    """Build the graph of a model, its weights declared but absent.

    Raises UnsupportedModelError for a `model_type` that has no file here and was not registered.
    """
    if config.model_type not in _MODELS:
        require_supported(config.model_type)
        import_module(f"dashinfer_lab.models.{config.model_type}")
    builder = GraphBuilder(config, scheme)
    return builder.finish(_MODELS[config.model_type](builder, config))
