"""vLLM's options of a model as this package's: each is meant, or refused by its name.

Knows neither model nor machine.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.numbers import require_count

__all__ = ["LoadArguments"]

T = TypeVar("T")

_WEIGHTS: Final = {"auto": None, "float32": "fp32", "float": "fp32", "bfloat16": "bf16"}

# Options with the values that ask for nothing else than what is done anyway.
_HOLDS: Final[Mapping[str, tuple[object, ...]]] = {
    "async_scheduling": (False,),
    "block_size": (None, 32),
    "config_format": ("auto", "hf"),
    "cpu_offload_gb": (0,),
    "data_parallel_size": (1,),
    "device": ("auto", "cpu"),
    "disable_log_stats": (True, False),
    "distributed_executor_backend": (None, "uni"),
    "enable_chunked_prefill": (None, True),
    "enable_lora": (False,),
    "enforce_eager": (False,),
    "generation_config": ("auto",),
    "hf_overrides": (None,),
    "kv_transfer_config": (None,),
    "load_format": ("auto", "safetensors", "gguf"),
    "max_logprobs": (20,),
    "pipeline_parallel_size": (1,),
    "quantization": (None,),
    "quantization_param_path": (None,),
    "revision": (None,),
    "skip_tokenizer_init": (False,),
    "speculative_config": (None,),
    "swap_space": (0,),
    "task": ("auto", "generate"),
    "tensor_parallel_size": (1,),
    "tokenizer_mode": ("auto", "hf"),
    "tokenizer_revision": (None,),
    # A leave that is not taken: no code of a model is ever run.
    "trust_remote_code": (True, False),
}

_REASONS: Final[Mapping[str, str]] = {
    "block_size": "a page of the cache has 32 tokens",
    "cpu_offload_gb": "there is no other memory to offload from",
    "data_parallel_size": "one process serves all cores: set threads",
    "disable_custom_all_reduce": "nothing is reduced between devices",
    "enable_chunked_prefill": "long prompts are always computed in chunks",
    "enforce_eager": "kernels are compiled before the first step, and there is no other way",
    "gpu_memory_utilization": "there is no GPU: give kv_cache_bytes, or leave it away",
    "pipeline_parallel_size": "one process serves all cores: set threads",
    "quantization": 'give weights, such as "a16w8"',
    "revision": "write it behind the model's id: owner/name@revision",
    "seed": "give a seed in SamplingParams: it holds whatever else is in the batch",
    "swap_space": "keys and values are in this memory already",
    "tensor_parallel_size": "one process serves all cores: set threads",
}

_MEANT: Final = frozenset(
    (
        "dtype",
        "enable_prefix_caching",
        "kv_cache_memory_bytes",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
    )
)
_COUNTS: Final = _MEANT - {"dtype", "enable_prefix_caching"}


class LoadArguments(NamedTuple):
    """Those arguments of `LLM` that vLLM has under other names."""

    weights: str
    context_length: int | None
    max_batch_tokens: int
    kv_cache_bytes: int | None
    engine: EngineOptions | None

    def with_vllm(self, options: Mapping[str, Any]) -> LoadArguments:
        """These, and what vLLM's options mean. Raises ConfigError for each that cannot hold."""
        _require_engine_options(self.engine)
        refused = [why for name, value in options.items() if (why := _refusal(name, value))]
        if refused:
            raise ConfigError("; ".join(refused))
        given = {name: value for name, value in options.items() if value is not None}
        for name in _COUNTS & given.keys():
            require_count(name, given[name])
        return LoadArguments(
            self._weights(given.get("dtype", "auto")),
            _either("max_model_len", given, self.context_length, None),
            _either("max_num_batched_tokens", given, self.max_batch_tokens, 512),
            _either("kv_cache_memory_bytes", given, self.kv_cache_bytes, None),
            self._engine(given),
        )

    def _weights(self, dtype: object) -> str:
        name = str(dtype).rpartition(".")[2]  # torch.float32 says it of itself
        if name not in _WEIGHTS:
            raise ConfigError(
                f"dtype={dtype!r:.80} is not possible: it is one of {', '.join(_WEIGHTS)}; for "
                'weights of 8 or 4 bits give weights="a16w8" or "a16w4"'
            )
        scheme = _WEIGHTS[name]
        if scheme is None:
            return self.weights
        if self.weights not in ("auto", scheme):
            raise ConfigError(f"dtype={dtype!r:.80} contradicts weights={self.weights!r}")
        return scheme

    def _engine(self, given: Mapping[str, Any]) -> EngineOptions | None:
        names = {"max_num_seqs": "max_running", "enable_prefix_caching": "enable_prefix_caching"}
        asked = {ours: theirs for theirs, ours in names.items() if theirs in given}
        if not asked:
            return self.engine
        before, usual = self.engine or EngineOptions(), EngineOptions()
        values = {
            ours: _either(theirs, given, getattr(before, ours), getattr(usual, ours))
            for ours, theirs in asked.items()
        }
        return replace(before, **values)


def _require_engine_options(given: object) -> None:
    if given is not None and not isinstance(given, EngineOptions):
        raise ConfigError(
            f"engine={given!r:.80} is not possible: give EngineOptions, such as "
            "EngineOptions(max_running=8), or leave it away"
        )


def _either(name: str, given: Mapping[str, Any], ours: T, default: T) -> T:
    """vLLM's value or ours, where not both are given and differ."""
    if name not in given:
        return ours
    if ours not in (default, given[name]):
        raise ConfigError(f"{name}={given[name]!r:.80} contradicts {ours!r}, given beside it")
    return given[name]


def _refusal(name: str, value: object) -> str | None:
    """Why an option cannot hold; None where it can."""
    if name in _MEANT:
        return None
    if name in _HOLDS:
        if any(value is held or value == held for held in _HOLDS[name]):
            return None
    elif name not in _REASONS:
        known = sorted({*_HOLDS, *_MEANT, *_REASONS})
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{name}={value!r:.80} is no option of a model{hint}"
    return f"{name}={value!r:.80} is not possible here: {_REASONS.get(name, 'leave it away')}"
