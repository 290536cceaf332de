"""What a request gives back, in vLLM's shapes: per token, per choice, whole; data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dashinfer_lab.errors import DashInferLabError
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.sampling import Logprob, TokenLogprobs

__all__ = ["CompletionOutput", "FinishReason", "RequestOutput", "TokenEvent"]

FinishReason = Literal["stop", "length", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of a stream, and the text that became certain with it.

    The last event has a finish_reason and metrics; its token_id is None where no token came.
    """

    token_id: int | None
    text: str
    logprobs: TokenLogprobs | None = None
    time_seconds: float = 0.0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: DashInferLabError | None = None
    metrics: RequestMetrics | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice. `stop_reason` is the stop text or id that was met, None for end of sequence."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None
    cumulative_logprob: float | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: DashInferLabError | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """All choices of one prompt, in order of their index."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput] = field(default_factory=list[CompletionOutput])
    finished: bool = True
    metrics: RequestMetrics | None = None
