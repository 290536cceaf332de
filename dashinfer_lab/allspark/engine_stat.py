"""What a served model holds and does, under DashInfer's names."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Final

from dashinfer_lab.events import StepEvent
from dashinfer_lab.llm import LLM

__all__ = ["AsEngineStat", "StepRates", "TokenTally", "engine_stat"]

_LATEST_STEPS: Final = 256


@dataclass(frozen=True, slots=True)
class AsEngineStat:
    """A span is a page of the cache; pool sizes are bytes of the cache, rates tokens a second.

    Rates are over the latest steps, while they ran. total_generated_token: tokens drawn, the one
    that a prompt ends with among them; of a request that was dropped, those received until
    then.
    """

    model_name: str
    total_span: int
    used_span: int
    free_span: int
    span_size: int
    total_token: int
    free_token: int
    token_usage_percentage: float
    pending_request: int
    running_request: int
    total_device_memory_pool_size: int
    used_device_memory_pool_size: int
    total_generated_token: int
    total_prefill_token: int
    generate_token_persec: float
    process_token_persec: float
    prefix_cache_hit_token: int
    prefix_cache_miss_token: int
    prefix_cache_hit_rate: float
    prefix_cache_miss_rate: float

    @property
    def pendding_request(self) -> int:
        """`pending_request`, as DashInfer spells it."""
        return self.pending_request

    def ToMap(self) -> dict[str, Any]:
        """All values by name."""
        return asdict(self)

    def ToString(self) -> str:
        """One value a line."""
        return "\n".join(f"{name} = {value}" for name, value in self.ToMap().items())


class TokenTally:
    """Counts tokens; any thread may add, also within a collection of garbage."""

    def __init__(self) -> None:
        self.total = 0
        # A collection may come within an addition, and drop a queue that adds.
        self._lock: Final = threading.RLock()

    def add(self, num_tokens: int) -> None:
        """Count so many more."""
        with self._lock:
            self.total += num_tokens


class StepRates:
    """Subscribes to steps and keeps the latest; written by the engine's thread alone."""

    def __init__(self) -> None:
        self._steps: Final[deque[StepEvent]] = deque(maxlen=_LATEST_STEPS)

    def __call__(self, event: StepEvent) -> None:
        """Take in a step."""
        self._steps.append(event)

    def rates(self) -> tuple[float, float]:
        """Tokens of decode, and of all, a second of the latest steps; 0 before the first."""
        steps = self._steps.copy()
        seconds = sum(step.total_seconds for step in steps)
        if seconds <= 0:
            return 0.0, 0.0
        decoded = sum(step.num_decode_tokens for step in steps)
        prefilled = sum(step.num_prefill_tokens for step in steps)
        return decoded / seconds, (decoded + prefilled) / seconds


def engine_stat(
    model_name: str, llm: LLM, rates: StepRates, num_generated_tokens: int
) -> AsEngineStat:
    """Read a model's figures now."""
    stats, memory = llm.engine.stats(), llm.memory()
    page_bytes = memory.kv_bytes // stats.num_pages
    page_tokens = page_bytes // memory.kv_bytes_per_position
    free = stats.num_pages - stats.num_pages_used
    prompts = stats.num_cached_tokens + stats.num_prefill_tokens
    generated, processed = rates.rates()
    return AsEngineStat(
        model_name=model_name,
        total_span=stats.num_pages,
        used_span=stats.num_pages_used,
        free_span=free,
        span_size=page_tokens,
        total_token=stats.num_pages * page_tokens,
        free_token=free * page_tokens,
        token_usage_percentage=stats.num_pages_used / stats.num_pages,
        pending_request=stats.num_queued,
        running_request=stats.num_running,
        total_device_memory_pool_size=memory.kv_bytes,
        used_device_memory_pool_size=stats.num_pages_used * page_bytes,
        total_generated_token=num_generated_tokens,
        total_prefill_token=stats.num_prefill_tokens,
        generate_token_persec=generated,
        process_token_persec=processed,
        prefix_cache_hit_token=stats.num_cached_tokens,
        prefix_cache_miss_token=stats.num_prefill_tokens,
        prefix_cache_hit_rate=stats.num_cached_tokens / prompts if prompts else 0.0,
        prefix_cache_miss_rate=stats.num_prefill_tokens / prompts if prompts else 0.0,
    )
