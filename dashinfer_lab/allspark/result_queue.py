"""A request's results as DashInfer hands them out: new ids at a time, and how far it is.

        no token yet    tokens there, none taken    some taken        all taken
submit ──▶ Init ───────▶ ContextFinished ─────────▶ Generating ─────▶ GenerateFinished
                                                                 ├──▶ GenerateInterrupted (stopped)
                                                                 └──▶ InternalError

A status of the end comes with the last token that was taken, so that a loop of Get until then
misses none; after `sync_request` it comes at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dashinfer_lab.allspark._allspark import AsStatus, GenerateRequestStatus, status_of
from dashinfer_lab.engine import RequestHandle
from dashinfer_lab.engine.waiting import SLICE_SECONDS, Deadline
from dashinfer_lab.errors import DashInferLabError, RequestError
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.outputs import TokenEvent

__all__ = ["STAT_KEYS", "GeneratedElements", "ResultQueue"]

STAT_KEYS: Final = (
    "arrival_time",
    "first_token_time",
    "last_token_time",
    "finished_time",
    "time_to_first_token",
    "time_in_queue",
    "context_token_length",
    "generated_token_length",
    "context_cached_length",
    "context_tps",
    "generate_tps",
)
"""What `ResultQueue.RequestStatInfo` tells."""

_ENDS: Final = {
    "stop": GenerateRequestStatus.GenerateFinished,
    "length": GenerateRequestStatus.GenerateFinished,
    "cancelled": GenerateRequestStatus.GenerateInterrupted,
    "error": GenerateRequestStatus.InternalError,
}


@dataclass(frozen=True, slots=True)
class GeneratedElements:
    """Tokens drawn since the last Get; itself a DLPack tensor of their ids, int64 [n].

    token_logprobs_list: of each token, as the model rated it. log_probs_list: of each token, pairs
    of id and log-probability, the likeliest first. Both are empty unless asked for.
    prefix_cache_len: tokens of the prompt that were in the cache; comes with the end.
    """

    ids_from_generate: list[int]
    token_logprobs_list: list[float]
    log_probs_list: list[list[tuple[int, float]]]
    prefix_cache_len: int | None = None

    def __dlpack__(self, **options: Any) -> Any:
        return np.array(self.ids_from_generate, np.int64).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.empty(0, np.int64).__dlpack_device__()


class ResultQueue:
    """Several consumers share the tokens. Dropped together with its handle, it cancels the request.

    Of a request that was refused, every Get raises the reason. tally: called with the tokens that
    were received, as they are.
    """

    def __init__(
        self,
        handle: RequestHandle | DashInferLabError,
        tally: Callable[[int], None] | None = None,
    ) -> None:
        self._pending: Final[list[TokenEvent]] = []
        self._num_drawn = 0
        self._last: TokenEvent | None = None
        self._synced = False
        self._changed: Final = threading.Condition()
        self._reader: object | None = None
        self._handle: RequestHandle | None = None
        if isinstance(handle, DashInferLabError):
            self._last = TokenEvent(None, "", finish_reason="error", error=handle)
        else:
            self._handle = handle
        self._tally: Final = tally

    def Get(self) -> GeneratedElements | None:
        """Wait for new tokens and take all there are; None after the last. Raises its error."""
        return self._get(None)

    def GetNoWait(self) -> GeneratedElements | None:
        """Take the new tokens; None where there are none now. Raises its error."""
        return self._get(0)

    def GetWithTimeout(self, timeout_ms: float) -> GeneratedElements | None:
        """Wait at most so many milliseconds for new tokens; else None. Raises its error."""
        try:
            seconds = timeout_ms / 1000
        except TypeError as error:
            raise RequestError(
                f"timeout_ms={timeout_ms!r:.80} must be a number of milliseconds"
            ) from error
        return self._get(seconds)

    def GenerateStatus(self) -> GenerateRequestStatus:
        """How far the request is, as its consumer knows it; see the drawing above."""
        self._take(0)
        with self._changed:
            num_pending, num_drawn, last = len(self._pending), self._num_drawn, self._last
        if last is not None and (self._synced or not num_pending):
            return _ENDS[last.finish_reason or "error"]
        if not num_drawn:
            return GenerateRequestStatus.Init
        untouched = num_pending == num_drawn
        waiting = GenerateRequestStatus.ContextFinished
        return waiting if untouched else GenerateRequestStatus.Generating

    def GeneratedLength(self) -> int:
        """Tokens drawn so far, taken or not."""
        self._take(0)
        return self._num_drawn

    def RequestStatInfo(self) -> dict[str, float | int | None]:
        """Times and counts; None where it has not come. Those of the end come with it.

        arrival_time, first_token_time, last_token_time, finished_time: seconds of one clock.
        time_to_first_token, time_in_queue: milliseconds.  context_tps, generate_tps: tokens a
        second of prefill and of decode.
        """
        self._take(0)
        metrics = None if self._last is None else self._last.metrics
        return _stat_info(metrics)

    def synchronise(self) -> AsStatus:
        """Wait for the end; an interrupt cancels."""
        try:
            while self._last is None:
                self._take(SLICE_SECONDS, self._num_drawn)
        except BaseException:
            self.cancel()
            raise
        self._synced = True
        return AsStatus.ALLSPARK_SUCCESS if self.error is None else status_of(self.error)

    def cancel(self) -> None:
        """Ask the engine to end the request; what was drawn stays to be taken."""
        if self._handle is not None:
            self._handle.cancel()

    @property
    def error(self) -> DashInferLabError | None:
        """What ended the request, where an error did."""
        return None if self._last is None else self._last.error

    def _get(self, timeout: float | None) -> GeneratedElements | None:
        deadline = Deadline(timeout)
        self._take(0)
        while True:
            # Read before the tokens are taken: what comes in between is no reason to wait.
            num_known, last = self._num_drawn, self._last
            element = self._element()
            if element is not None:
                return element
            if last is not None and last.error is not None:
                raise last.error
            if last is not None or deadline.over:
                return None
            self._take(deadline.slice(), num_known)

    def _take(self, timeout: float, num_known: int = 0) -> None:
        """Receive what is there, waiting for the first so long.

        Where another consumer receives, wait for it to have more than num_known tokens instead.
        """
        handle = self._handle
        if handle is None:
            return
        deadline, me = Deadline(timeout), object()
        try:
            with self._changed:
                while self._reader is not None and self._num_drawn <= num_known:
                    if self._last is not None or deadline.over:
                        return
                    self._changed.wait(deadline.slice())
                if self._reader is not None:
                    return
                self._reader = me
            self._receive(handle, deadline.slice())
        finally:
            self._let_go(me)

    def _receive(self, handle: RequestHandle, timeout: float) -> None:
        with suppress(TimeoutError):
            while self._last is None and (event := handle.get(timeout)) is not None:
                timeout = 0
                with self._changed:
                    if event.token_id is not None:
                        self._pending.append(event)
                        self._num_drawn += 1
                        if self._tally is not None:
                            self._tally(1)
                    if event.finish_reason is not None:
                        self._last = event
                    self._changed.notify_all()

    def _let_go(self, reader: object) -> None:
        with self._changed:
            if self._reader is reader:
                self._reader = None
                self._changed.notify_all()

    def _element(self) -> GeneratedElements | None:
        with self._changed:
            events = tuple(self._pending)
            self._pending.clear()
        if not events:
            return None
        metrics = None if self._last is None else self._last.metrics
        rated = [event.logprobs for event in events if event.logprobs is not None]
        return GeneratedElements(
            ids_from_generate=[e.token_id for e in events if e.token_id is not None],
            token_logprobs_list=[each.logprob for each in rated],
            log_probs_list=[list(each.top) for each in rated],
            prefix_cache_len=None if metrics is None else metrics.num_cached_tokens,
        )

    def __repr__(self) -> str:
        return f"<ResultQueue {self.GenerateStatus().name}: {self._num_drawn} tokens>"


def _stat_info(metrics: RequestMetrics | None) -> dict[str, float | int | None]:
    if metrics is None:
        return dict.fromkeys(STAT_KEYS)
    queue, first = metrics.queue_seconds, metrics.ttft_seconds
    prefill = None if queue is None or first is None else first - queue
    seconds_per_token = metrics.seconds_per_token
    values = (
        metrics.arrival_seconds,
        metrics.first_token_seconds,
        metrics.last_token_seconds,
        metrics.finished_seconds,
        None if first is None else first * 1000,
        None if queue is None else queue * 1000,
        metrics.num_prompt_tokens,
        metrics.num_output_tokens,
        metrics.num_cached_tokens,
        (metrics.num_prompt_tokens - metrics.num_cached_tokens) / prefill if prefill else None,
        1 / seconds_per_token if seconds_per_token else None,
    )
    return dict(zip(STAT_KEYS, values, strict=True))
