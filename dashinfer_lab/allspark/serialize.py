"""A PyTorch model, or its weights and config, as a converted model on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from dashinfer_lab.config import expanded
from dashinfer_lab.convert import Artifact, convert
from dashinfer_lab.errors import ConfigError, UnsupportedModelError
from dashinfer_lab.hub import Checkpoint, TransformersCheckpoint
from dashinfer_lab.hub.transformers_checkpoint import is_transformers_model
from dashinfer_lab.quantize import Scheme

__all__ = [
    "TORCH_MODEL_TYPES",
    "directory_for",
    "require_agreement",
    "torch_checkpoint",
    "write_checkpoint",
]

TORCH_MODEL_TYPES: Final[Mapping[str, str]] = {
    "LLaMA_v2": "llama",
    "LLaMA_v3": "llama",
    "Qwen_v10": "qwen",
    "Qwen_v15": "qwen2",
    "Qwen_v20": "qwen2",
    "Qwen_v20_MOE": "qwen2_moe",
    "Qwen_v30": "qwen3",
    "ChatGLM_v2": "chatglm",
    "ChatGLM_v3": "chatglm",
    "ChatGLM_v4": "chatglm",
    "Baichuan": "baichuan",
    "Baichuan_v2": "baichuan",
}
"""DashInfer's model types as transformers' `model_type`."""

_ROTARY_BASE: Final = 10000.0
_PLAIN: Final = (str, int, float, bool, list, dict)


class _Weights:
    """A state dict and a config with the two methods that a transformers model has for them."""

    def __init__(self, name: str, tensors: Mapping[str, Any], config: dict[str, object]) -> None:
        self.name_or_path = name
        self.config = _Config(config)
        self._tensors = tensors

    def state_dict(self) -> dict[str, Any]:
        return dict(self._tensors)


class _Config:
    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    def to_dict(self) -> dict[str, object]:
        return dict(self._values)


def torch_checkpoint(
    model_name: str, model_type: str, torch_model: Any, model_config: Any, tokenizer: Any = None
) -> TransformersCheckpoint:
    """Read `torch_model`, a transformers model or a state dict with its config, as a checkpoint.

    model_config: that of a state dict: a mapping, or a transformers config. Raises ConfigError.
    """
    if model_type and model_type not in TORCH_MODEL_TYPES:
        raise UnsupportedModelError(
            f"model_type {model_type!r:.80} is unknown; it is one of {', '.join(TORCH_MODEL_TYPES)}"
        )
    if is_transformers_model(torch_model):
        return TransformersCheckpoint(torch_model, tokenizer)
    if not isinstance(torch_model, Mapping):
        raise ConfigError(
            f"torch_model={type(torch_model).__name__} is not understood: give a transformers "
            "model, or its state_dict() with model_config"
        )
    config = _plain_config(model_config)
    config.setdefault("model_type", TORCH_MODEL_TYPES.get(model_type, ""))
    weights = _Weights(model_name, cast("Mapping[str, Any]", torch_model), config)
    return TransformersCheckpoint(weights, tokenizer)


def directory_for(save_dir: Any, model_name: Any) -> Path:
    """Where a model of this name lies below `save_dir`."""
    is_named = isinstance(model_name, str) and model_name not in ("", ".", "..")
    is_placed = isinstance(save_dir, str | Path) and save_dir != ""
    if not is_placed or not is_named or not {"/", "\0"}.isdisjoint(model_name):
        raise ConfigError(
            f"save_dir={save_dir!r:.200} and model_name={model_name!r:.80} must say where the "
            "model is written: a directory and a file's name"
        )
    return expanded(save_dir) / model_name


def write_checkpoint(
    checkpoint: Checkpoint, directory: Path, scheme: Scheme, *, overwrite: bool = True
) -> Artifact:
    """Convert below an existing or a new parent directory."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    return convert(checkpoint, directory, scheme, overwrite=overwrite)


def require_agreement(model_config: Any, arguments: Mapping[str, Any]) -> None:
    """Refuse what a caller says of positions where the config says otherwise."""
    stated = _plain_config(model_config)
    parameters = stated.get("rope_parameters")
    rope = cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}
    theta = stated.get("rope_theta") or rope.get("rope_theta") or stated.get("rotary_emb_base")
    known = {**stated, "rotary_base": theta or _ROTARY_BASE}
    for name, value in arguments.items():
        if value is not None and value != known.get(name, False):
            raise ConfigError(
                f"{name}={value!r:.80} contradicts the model's config, which says "
                f"{known.get(name, False)!r:.80}: change the config, or leave it away"
            )


def _plain_config(given: Any) -> dict[str, object]:
    """The values of a config that its file could hold."""
    if given is None:
        raise ConfigError("a state dict needs model_config: give the model's config beside it")
    values = given.to_dict() if hasattr(given, "to_dict") else given
    if not isinstance(values, Mapping):
        raise ConfigError(f"model_config={type(given).__name__} is not understood: give a mapping")
    named = cast("Mapping[str, Any]", values)
    return {
        key: value
        for key, value in named.items()
        if isinstance(value, _PLAIN) and not key.startswith("_")
    }
