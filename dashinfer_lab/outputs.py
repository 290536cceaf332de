"""What a request gives back, in vLLM's shapes: per token, per choice, whole; data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dashinfer_lab.errors import DashInferLabError
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.sampling import Logprob, TokenLogprobs

__all__ = ["CompletionOutput", "FinishReason", "RequestOutput", "StopReason", "TokenEvent"]

FinishReason = Literal["stop", "length", "error", "cancelled"]
StopReason = int | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of a stream, and the text that became certain with it.

    The last event has a finish_reason and metrics; its token_id is None where no token came.
    prompt_logprobs: on the first event where they were asked for; none for the first token.
    """

    token_id: int | None
    text: str
    logprobs: TokenLogprobs | None = None
    time_seconds: float = 0.0
    finish_reason: FinishReason | None = None
    stop_reason: StopReason | None = None
    error: DashInferLabError | None = None
    metrics: RequestMetrics | None = None
    prompt_logprobs: Sequence[TokenLogprobs] | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice. `stop_reason`: the stop text, id or ids met; None for end of sequence."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None
    cumulative_logprob: float | None = None
    finish_reason: FinishReason | None = None
    stop_reason: StopReason | None = None
    error: DashInferLabError | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """All choices of one prompt, in order of their index.

    prompt_logprobs: by id, for each token of the prompt; None for the first, which nothing rates.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput] = field(default_factory=list[CompletionOutput])
    finished: bool = True
    metrics: RequestMetrics | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
