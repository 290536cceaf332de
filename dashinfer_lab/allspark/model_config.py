"""`AsModelConfig`: how a model is served, in DashInfer's names, and what that means here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashinfer_lab.allspark._allspark import AsCacheMode, AsMHAPrefill
from dashinfer_lab.config import expanded
from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.engine.loading import MAX_LOGIT_ROWS
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.numbers import is_whole
from jit_kernels.kv_layout import PAGE_SIZE

__all__ = ["AsModelConfig", "load_arguments", "model_source", "require_flag", "require_text"]

_GRAPH_SUFFIXES = (".dimodel", ".asgraph")
_CACHE_DTYPES = {AsCacheMode.AsCacheDefault: "auto", AsCacheMode.AsCacheQuantI8: "int8"}
_PRECISIONS = ("highest", "high", "medium")
_STEP_TOKENS = 512
_FLAGS = ("enable_prefix_cache", "enable_sparsity_matmul", "do_profiling")
_UNUSED_SIZES = ("cache_span_num_init", "lora_max_rank", "lora_max_num")


@dataclass(slots=True)
class AsModelConfig:
    """Where a model lies and how it is served; 0 takes the most that the model allows.

    model_path: what `serialize_model_from_torch` wrote, also as its `.dimodel` or `.asgraph` file,
    or whatever else `LLM` loads. weights_path: beside it, or empty.
    enable_prefix_cache: prompts that begin alike share pages, kept prefix_cache_ttl seconds.
    engine_max_length: positions of a sequence. engine_max_batch: requests in a step.
    engine_max_prefill_length: tokens of one prompt in a step. num_threads: 0 is automatic.
    matmul_precision: the least that products may have; those of floats here are always float32.
    cache_mode: AsCacheQuantI8 keeps keys and values in 8 bits.
    do_profiling: time every step, for `get_op_profiling_info`.
    LoRA limits bound what is never loaded, so any hold. Other options are refused by name where
    they ask for what is not here.
    """

    model_name: str = ""
    model_path: str = ""
    weights_path: str = ""
    compute_unit: str = "CPU:0"
    engine_max_length: int = 0
    engine_max_batch: int = 0
    num_threads: int = 0
    matmul_precision: str = "highest"
    prefill_mode: AsMHAPrefill = AsMHAPrefill.AsPrefillDefault
    cache_mode: AsCacheMode = AsCacheMode.AsCacheDefault
    engine_max_prefill_length: int = 0
    enable_prefix_cache: bool = True
    prefix_cache_ttl: float = 300
    cache_span_size: int = PAGE_SIZE
    cache_span_num_init: int = 0
    enable_sparsity_matmul: bool = False
    eviction_strategy: str | None = None
    scheduling_strategy: str | None = None
    lora_max_rank: int = 0
    lora_max_num: int = 0
    do_profiling: bool = False


def load_arguments(config: AsModelConfig) -> dict[str, Any]:
    """The arguments of `LLM` that a configuration means; ConfigError names what cannot hold."""
    _refuse_impossible(config)
    length = _size("engine_max_length", config.engine_max_length)
    batch = _size("engine_max_batch", config.engine_max_batch)
    chunk = _size("engine_max_prefill_length", config.engine_max_prefill_length)
    if batch is not None and batch > MAX_LOGIT_ROWS:
        raise ConfigError(
            f"engine_max_batch={batch} exceeds the {MAX_LOGIT_ROWS} requests of a step: lower it; "
            "further requests wait"
        )
    # A step has a token for each of its requests; `ServedModel` keeps sequences to their length.
    step_tokens = max(min(_STEP_TOKENS, length or _STEP_TOKENS), batch or 0)
    return {
        "threads": _size("num_threads", config.num_threads),
        "context_length": None if length is None else max(length, batch or 0),
        "max_batch_tokens": step_tokens,
        "engine": EngineOptions(
            max_running=batch,
            max_chunk_tokens=None if chunk is None else min(chunk, step_tokens),
            enable_prefix_caching=config.enable_prefix_cache,
            prefix_cache_ttl=config.prefix_cache_ttl,
        ),
        "kv_cache_dtype": _CACHE_DTYPES[config.cache_mode],
        "always_profile": True if config.do_profiling else None,
    }


def model_source(config: AsModelConfig) -> str | Path:
    """What `LLM` is to load: the directory behind a graph file's name, or the path as it is."""
    given = config.model_path
    require_text("model_path", given)
    path = expanded(given)
    if path.suffix not in _GRAPH_SUFFIXES:
        _require_no_weights(config)
        return given
    directory = path.parent if path.is_file() else path.with_suffix("")
    _require_beside(directory, config.weights_path)
    return directory


def require_text(name: str, value: object) -> None:
    """Raise ConfigError for what is neither a path nor a text, or an empty one."""
    if not isinstance(value, str | Path) or value == "":
        raise ConfigError(f"{name}={value!r:.80} is not possible: give a text that is not empty")


def require_flag(name: str, value: object) -> bool:
    """Return `value`, True or False; else raise ConfigError naming the option."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r:.80} is not possible: it must be True or False")
    return value


def _require_no_weights(config: AsModelConfig) -> None:
    """Refuse weights beside what is loaded whole, which would not be read."""
    if config.weights_path:
        raise ConfigError(
            f"weights_path={config.weights_path!r:.200} would not be read: "
            f"model_path={str(config.model_path)!r:.200} is loaded with its own weights. Leave "
            "weights_path empty, or give model_path as the .dimodel that was written beside it"
        )


def _require_beside(directory: Path, weights_path: str) -> None:
    """Refuse weights of another place: graph and weights are written and checked as one."""
    if not weights_path:
        return
    require_text("weights_path", weights_path)
    weights = expanded(weights_path)
    if directory not in (weights.parent, weights.with_suffix("")):
        raise ConfigError(
            f"weights_path={weights_path!r:.200} is not beside the graph in {directory}: give the "
            "pair that was written together"
        )


def _refuse_impossible(config: AsModelConfig) -> None:
    _require_cpu(config.compute_unit)
    if config.matmul_precision not in _PRECISIONS:
        _refuse(config, "matmul_precision", f"it is one of {', '.join(_PRECISIONS)}")
    if config.cache_mode not in tuple(_CACHE_DTYPES):
        _refuse(
            config, "cache_mode", "keys and values are kept as AsCacheDefault or AsCacheQuantI8"
        )
    if config.prefill_mode is not AsMHAPrefill.AsPrefillDefault:
        _refuse(config, "prefill_mode", "these are kernels of GPUs: AsPrefillDefault")
    if config.cache_span_size != PAGE_SIZE:
        _refuse(config, "cache_span_size", f"a page of the cache has {PAGE_SIZE} tokens")
    for name in _FLAGS:
        require_flag(name, getattr(config, name))
    for name in _UNUSED_SIZES:
        _size(name, getattr(config, name))
    if config.enable_sparsity_matmul:
        _refuse(config, "enable_sparsity_matmul", "no kernel here skips zeros: leave it False")
    if config.cache_span_num_init:
        _refuse(config, "cache_span_num_init", "pages are taken as they are used: leave it 0")
    for name in ("eviction_strategy", "scheduling_strategy"):
        if getattr(config, name) is not None:
            _refuse(config, name, "the oldest request always goes on: leave it None")


def _refuse(config: AsModelConfig, name: str, reason: str) -> None:
    raise ConfigError(f"{name}={getattr(config, name)!r:.80} is not possible: {reason}")


def _require_cpu(unit: object) -> None:
    kind, _, ids = str(unit).partition(":")
    if kind != "CPU":
        raise ConfigError(f'compute_unit={unit!r:.80} is not possible: models run on "CPU:0" here')
    if ids not in ("", "0"):
        raise ConfigError(
            f'compute_unit={unit!r:.80} is not possible: one process serves all nodes, as "CPU:0"'
        )


def _size(name: str, value: object) -> int | None:
    if not is_whole(value) or value < 0:
        raise ConfigError(f"{name}={value!r:.80} must be a whole number, 0 for automatic")
    return value or None
