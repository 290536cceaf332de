"""DashInfer's JSON configuration of a model, read whole: no key is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from dashinfer_lab.allspark.generation_config import GENERATION_KEYS, require_known
from dashinfer_lab.allspark.model_config import AsModelConfig, load_arguments, require_flag
from dashinfer_lab.allspark.quantization import QuantizeConfig, scheme_of
from dashinfer_lab.config import expanded
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.hub.files import read_json_object
from dashinfer_lab.quantize import Scheme

__all__ = ["ConfigManager", "ModelDescription"]

_KEYS: Final = frozenset(
    (
        "convert_config",
        "data_type",
        "device_ids",
        "device_type",
        "engine_config",
        "generation_config",
        "model_name",
        "model_path",
        "model_type",
        "multinode_mode",
        "quantization_config",
    )
)
_ENGINE_KEYS: Final = frozenset(
    ("do_profiling", "engine_max_batch", "engine_max_length", "matmul_precision", "num_threads")
)
_QUANT_KEYS: Final = frozenset(("GroupSize", "SubChannel", "activation_type", "weight_type"))


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What a JSON configuration says, checked.

    scheme: of the weights when the model is converted. generation: a request's options.
    """

    model_name: str
    model_type: str
    model_path: str
    data_type: str
    scheme: Scheme
    quant_config: QuantizeConfig | None
    runtime: AsModelConfig
    generation: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ConfigManager:
    """Reads configurations under DashInfer's name."""

    @staticmethod
    def get_config_from_json(path: str | Path) -> dict[str, Any]:
        """The file's object, checked. Raises ConfigError for what means nothing or cannot hold."""
        config = dict(read_json_object(expanded(path)))
        ConfigManager.describe(config)
        return config

    @staticmethod
    def describe(config: Mapping[str, Any]) -> ModelDescription:
        """What a configuration means; ConfigError names each key that means nothing."""
        require_known("the configuration", config, _KEYS)
        convert = _section(config, "convert_config", frozenset(("do_dynamic_quantize_convert",)))
        engine = _section(config, "engine_config", _ENGINE_KEYS)
        generation = _section(config, "generation_config", GENERATION_KEYS)
        quant = _quant(_section(config, "quantization_config", _QUANT_KEYS))
        name = "do_dynamic_quantize_convert"
        chosen = quant if require_flag(name, convert.get(name, False)) else None
        data_type = _text(config, "data_type", "float32")
        name = _text(config, "model_name", "")
        path = _text(config, "model_path", "")
        runtime = AsModelConfig(
            model_name=name, model_path=path, compute_unit=_compute_unit(config), **engine
        )
        load_arguments(runtime)  # raises for what cannot hold
        return ModelDescription(
            model_name=name,
            model_type=_text(config, "model_type", ""),
            model_path=path,
            data_type=data_type,
            scheme=scheme_of(data_type, chosen),
            quant_config=chosen,
            runtime=runtime,
            generation=generation,
        )


def _section(config: Mapping[str, Any], name: str, known: frozenset[str]) -> dict[str, Any]:
    found = config.get(name, {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"{name}={found!r:.80} must be an object")
    section = cast("Mapping[str, Any]", found)
    require_known(name, section, known)
    return dict(section)


def _quant(section: Mapping[str, Any]) -> QuantizeConfig:
    kinds = {key: section[key] for key in ("activation_type", "weight_type") if key in section}
    rest = {key: section[key] for key in ("SubChannel", "GroupSize") if key in section}
    return QuantizeConfig(**kinds, extra_option=rest)


def _text(config: Mapping[str, Any], name: str, default: str) -> str:
    value = config.get(name, default)
    if not isinstance(value, str):
        raise ConfigError(f"{name}={value!r:.80} must be a text")
    return value


def _compute_unit(config: Mapping[str, Any]) -> str:
    """One process serves all nodes, so that several device ids, or none, mean the same."""
    device = _text(config, "device_type", "CPU")
    if device != "CPU":
        raise ConfigError(f'device_type={device!r:.80} is not possible: models run on "CPU" here')
    ids = config.get("device_ids", [0])
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        raise ConfigError(f"device_ids={ids!r:.80} must be a list of whole numbers")
    require_flag("multinode_mode", config.get("multinode_mode", False))
    return f"{device}:0"
