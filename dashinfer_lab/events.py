"""What the engine tells its subscribers, and the times of a request; data only, no clock.

All times are seconds of one monotonic clock; only their differences mean something.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RequestMetrics", "StepEvent"]


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One step of the engine: what was in the batch, how long it took, what the cache holds.

    predicted_seconds: what `run_seconds` was expected to be; None before enough was measured.
    num_prefix_hits, num_cached_tokens: newcomers of this step that found pages computed, and the
    tokens they need not compute.  num_pages_cached: pages nobody uses whose contents are kept; they
    are not among `num_pages_used`.  num_expired: requests whose time was over.
    """

    index: int
    begin_seconds: float
    schedule_seconds: float
    run_seconds: float
    total_seconds: float
    num_prefill_tokens: int
    num_decode_tokens: int
    num_requests: int
    num_waiting: int
    num_preempted: int
    num_finished: int
    num_pages_used: int
    num_pages: int
    num_pages_cached: int = 0
    num_prefix_hits: int = 0
    num_cached_tokens: int = 0
    num_expired: int = 0
    predicted_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Times and counts of one request; None where it has not come so far.

    num_cached_tokens: of the prompt, taken from pages that were computed before.
    num_cut_tokens: of the prompt's head, left out because truncate_prompt_tokens asked for it.
    """

    arrival_seconds: float
    first_scheduled_seconds: float | None
    first_token_seconds: float | None
    last_token_seconds: float | None
    finished_seconds: float | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_preemptions: int
    num_cached_tokens: int = 0
    num_cut_tokens: int = 0

    @property
    def queue_seconds(self) -> float | None:
        """Time from arrival to the first step that worked on it."""
        return _between(self.arrival_seconds, self.first_scheduled_seconds)

    @property
    def ttft_seconds(self) -> float | None:
        """Time to first token: from arrival."""
        return _between(self.arrival_seconds, self.first_token_seconds)

    @property
    def seconds_per_token(self) -> float | None:
        """Mean time between tokens after the first; None with fewer than two."""
        span = _between(self.first_token_seconds, self.last_token_seconds)
        if span is None or self.num_output_tokens < 2:
            return None
        return span / (self.num_output_tokens - 1)


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin
