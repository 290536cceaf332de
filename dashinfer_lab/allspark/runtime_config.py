"""`AsModelRuntimeConfigBuilder`: an `AsModelConfig` step by step, or from a dict."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dashinfer_lab.allspark._allspark import AsCacheMode, TargetDevice
from dashinfer_lab.allspark.generation_config import require_known
from dashinfer_lab.allspark.model_config import AsModelConfig
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.numbers import is_whole

__all__ = ["AsModelRuntimeConfigBuilder"]

_KEYS: Final = frozenset(
    (
        "cache_span_num_init",
        "compute_unit",
        "enable_prefix_cache",
        "enable_sparsity_matmul",
        "engine_max_batch",
        "engine_max_length",
        "engine_max_prefill_length",
        "kv_cache_mode",
        "kv_cache_span_size",
        "model_name",
        "prefix_cache_ttl",
    )
)
_UNIT_KEYS: Final = frozenset(("compute_thread_in_device", "device_ids", "device_type"))


class AsModelRuntimeConfigBuilder:
    """Every step returns the builder; `build` returns what was collected and begins anew."""

    def __init__(self) -> None:
        self._config = AsModelConfig()

    def model_name(self, model_name: str) -> AsModelRuntimeConfigBuilder:
        """Name the model."""
        return self._set(model_name=model_name)

    def model_dir(self, model_dir: str, file_name_prefix: str) -> AsModelRuntimeConfigBuilder:
        """Say where a model of this name was written."""
        base = os.path.join(model_dir, file_name_prefix)  # noqa: PTH118  # kept as it is spelled
        return self.model_file_path(f"{base}.dimodel", f"{base}.ditensors")

    def model_file_path(
        self, model_file_name: str, weight_file_path: str
    ) -> AsModelRuntimeConfigBuilder:
        """Say where graph and weights lie."""
        return self._set(model_path=model_file_name, weights_path=weight_file_path)

    def compute_unit(
        self,
        target_device: TargetDevice | str,
        device_id_array: Sequence[int] | None = None,
        compute_thread_in_device: int = 0,
    ) -> AsModelRuntimeConfigBuilder:
        """Choose device and threads; 0 threads is automatic. CPU is one unit of all nodes."""
        device = _device(target_device)
        ids = ",".join(str(index) for index in _device_ids(device_id_array) or (0,))
        unit = {TargetDevice.CUDA: f"CUDA:{ids}", TargetDevice.CPU_NUMA: f"CPU:{ids}"}
        threads = _whole("compute_thread_in_device", compute_thread_in_device)
        return self._set(compute_unit=unit.get(device, "CPU:0"), num_threads=threads)

    def set_compute_unit_from_str(self, compute_unit: str) -> AsModelRuntimeConfigBuilder:
        """Choose the device as "CPU:0" spells it."""
        return self._set(compute_unit=compute_unit)

    def max_length(self, length: int | str) -> AsModelRuntimeConfigBuilder:
        """Positions of a sequence, prompt and output."""
        return self._set(engine_max_length=_whole("max_length", length))

    def max_batch(self, batch: int | str) -> AsModelRuntimeConfigBuilder:
        """Requests in a step."""
        return self._set(engine_max_batch=_whole("max_batch", batch))

    def max_prefill_length(self, length: int) -> AsModelRuntimeConfigBuilder:
        """Tokens of one prompt in a step."""
        return self._set(engine_max_prefill_length=length)

    def prefill_cache(self, enable: bool = True) -> AsModelRuntimeConfigBuilder:
        """Share what prompts that begin alike have in common."""
        return self._set(enable_prefix_cache=enable)

    def prefix_cache_ttl(self, ttl: int = 300) -> AsModelRuntimeConfigBuilder:
        """Seconds that shared beginnings are kept."""
        return self._set(prefix_cache_ttl=ttl)

    def kv_cache_mode(self, cache_mode: AsCacheMode) -> AsModelRuntimeConfigBuilder:
        """Format of keys and values."""
        return self._set(cache_mode=cache_mode)

    def kv_cache_span_size(self, span_size: int) -> AsModelRuntimeConfigBuilder:
        """Tokens of a page."""
        return self._set(cache_span_size=span_size)

    def set_span_init_size(self, span_init_size: int) -> AsModelRuntimeConfigBuilder:
        """Pages taken at once; 0 takes them as they are used."""
        return self._set(cache_span_num_init=span_init_size)

    def enable_sparsity_matmul(self, enable: bool = False) -> AsModelRuntimeConfigBuilder:
        """Skip zeros of weights."""
        return self._set(enable_sparsity_matmul=enable)

    def lora_max_rank(self, rank: int | str) -> AsModelRuntimeConfigBuilder:
        """Largest rank of an adapter."""
        return self._set(lora_max_rank=_whole("lora_max_rank", rank))

    def lora_max_num(self, num: int | str) -> AsModelRuntimeConfigBuilder:
        """Most adapters."""
        return self._set(lora_max_num=_whole("lora_max_num", num))

    def from_dict(self, rfield: Mapping[str, Any]) -> AsModelRuntimeConfigBuilder:
        """Take a runtime config; its model_name, compute_unit and sizes must be there."""
        require_known("the runtime config", rfield, _KEYS)
        absent = {"model_name", "compute_unit", "engine_max_length", "engine_max_batch"} - set(
            rfield
        )
        if absent:
            raise ConfigError(f"the runtime config lacks {', '.join(sorted(absent))}")
        return self.update_from_dict(rfield)

    def update_from_dict(self, rfield: Mapping[str, Any]) -> AsModelRuntimeConfigBuilder:
        """Take the options of a runtime config that are there; an unknown name is a ConfigError."""
        require_known("the runtime config", rfield, _KEYS)
        plain = {key: value for key, value in rfield.items() if not key.startswith("kv_cache")}
        unit = plain.pop("compute_unit", None)
        if unit is not None:
            require_known("compute_unit", unit, _UNIT_KEYS)
            self.compute_unit(
                unit.get("device_type", "CPU"),
                unit.get("device_ids"),
                unit.get("compute_thread_in_device", 0),
            )
        if "kv_cache_mode" in rfield:
            self.kv_cache_mode(_cache_mode(rfield["kv_cache_mode"]))
        if "kv_cache_span_size" in rfield:
            self.kv_cache_span_size(rfield["kv_cache_span_size"])
        return self._set(**plain)

    def build(self) -> AsModelConfig:
        """What was collected; the next config begins from nothing."""
        built, self._config = self._config, AsModelConfig()
        return built

    def _set(self, **values: Any) -> AsModelRuntimeConfigBuilder:
        self._config = replace(self._config, **values)
        return self


def _device(given: TargetDevice | str) -> TargetDevice:
    if isinstance(given, TargetDevice):
        return given
    try:
        return TargetDevice(str(given).upper())
    except ValueError:
        raise ConfigError(
            f"target_device={given!r:.80} (device_type of a dict) is unknown; models run on CPU "
            "here"
        ) from None


def _device_ids(given: Any) -> Sequence[int] | None:
    is_plain = given is None or (isinstance(given, Sequence) and not isinstance(given, str))
    if not is_plain or not all(is_whole(index) for index in given or ()):
        raise ConfigError(
            f"device_id_array={given!r:.80} (device_ids of a dict) must be a list of whole numbers"
        )
    return given


def _whole(name: str, given: Any) -> int:
    """A whole number, also one spelled as text."""
    try:
        if isinstance(given, bool):
            raise TypeError
        return int(given) if isinstance(given, str) else operator.index(given)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={given!r:.80} must be a whole number, 0 for automatic") from None


def _cache_mode(given: AsCacheMode | str) -> AsCacheMode:
    if isinstance(given, AsCacheMode):
        return given
    if given not in tuple(AsCacheMode.__members__):
        raise ConfigError(
            f"kv_cache_mode={given!r:.80} is unknown; it is one of "
            f"{', '.join(AsCacheMode.__members__)}"
        )
    return AsCacheMode[given]
