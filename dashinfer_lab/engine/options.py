"""How the engine batches, queues and shares; data only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dashinfer_lab.engine.batch import ModelRunner
from dashinfer_lab.engine.step_budget import StepLimits
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.numbers import require_count

__all__ = ["EngineOptions"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """None takes the most the model allows.

    max_step_tokens: tokens of a step.  max_chunk_tokens: tokens of one prompt in a step.
    max_running: requests in a step.
    max_queued: requests that may wait before `EngineBusyError`.
    max_slowdown: a step that computes prompts may take so many times what its decodes alone would,
    or 5 ms, which bounds what a long prompt adds to others' next token. Where all who decode have
    callers that wait for whole answers, it may take as long as any.
    max_step_seconds: the time any step may take. Both go by times measured before, and leave room
    for a few tokens; None is no limit.
    enable_prefix_caching: prompts that begin alike share what was computed.
    prefix_cache_ttl: seconds that pages nobody uses are remembered; None is until they are needed.
    short_prompt_seconds: a prompt that fits one step and is predicted to take no longer is computed
    at once. Decoders wait for it, up to so long for one token, but on average no longer than
    `max_slowdown` says, and not while a longer prompt is being computed. None is no such prompt.
    """

    max_step_tokens: int | None = None
    max_chunk_tokens: int | None = None
    max_running: int | None = None
    max_queued: int = 1024
    max_slowdown: float | None = 1.7
    max_step_seconds: float | None = 1.0
    enable_prefix_caching: bool = True
    prefix_cache_ttl: float | None = None
    short_prompt_seconds: float | None = 0.1

    def __post_init__(self) -> None:
        for name in ("max_step_tokens", "max_chunk_tokens", "max_running"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name))
        require_count("max_queued", self.max_queued)
        _require_number("max_slowdown", self.max_slowdown, 1)
        _require_number("max_step_seconds", self.max_step_seconds, 0)
        _require_number("short_prompt_seconds", self.short_prompt_seconds, 0)
        _require_number("prefix_cache_ttl", self.prefix_cache_ttl, 0)
        if self.enable_prefix_caching not in (True, False):
            raise ConfigError(
                f"enable_prefix_caching={self.enable_prefix_caching!r:.80} must be True or False"
            )

    def limits(self, runner: ModelRunner) -> StepLimits:
        """Fit the options to a model.

        No more requests run than a step has tokens and rows for, so none is ever left out.
        """
        most_tokens = runner.max_tokens
        tokens = _within("max_step_tokens", self.max_step_tokens, most_tokens)
        requests = min(tokens, runner.max_logit_rows)
        return StepLimits(
            max_tokens=tokens,
            max_chunk_tokens=min(tokens, self.max_chunk_tokens or tokens),
            max_logit_rows=runner.max_logit_rows,
            max_running=_within("max_running", self.max_running, requests),
            max_slowdown=self.max_slowdown,
            max_seconds=self.max_step_seconds,
            short_prompt_seconds=self.short_prompt_seconds,
        )


def _require_number(name: str, value: Any, above: float) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not above < value < math.inf:
        raise ConfigError(f"{name}={value!r:.80} must be a number above {above:g}, or None")


def _within(name: str, asked: int | None, most: int) -> int:
    if asked is not None and asked > most:
        raise ConfigError(f"{name}={asked} exceeds the {most} that a step can hold")
    return most if asked is None else asked
