"""How the engine batches and queues; data only."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dashinfer_lab.engine.batch import ModelRunner
from dashinfer_lab.engine.scheduler import StepLimits
from dashinfer_lab.errors import ConfigError

__all__ = ["EngineOptions"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """None takes the most the model allows.

    max_step_tokens: tokens of a step, which bounds what a long prompt adds to others' next token.
    max_chunk_tokens: tokens of one prompt in a step.  max_running: requests in a step.
    max_queued: requests that may wait before `EngineBusyError`.
    """

    max_step_tokens: int | None = None
    max_chunk_tokens: int | None = None
    max_running: int | None = None
    max_queued: int = 1024

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is None and option.default is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{option.name}={value!r} must be a whole number of at least 1")

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
        )


def _within(name: str, asked: int | None, most: int) -> int:
    if asked is not None and asked > most:
        raise ConfigError(f"{name}={asked} exceeds the {most} that a step can hold")
    return most if asked is None else asked
