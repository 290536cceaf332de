"""One step after another: schedule, compute, hand out; knows no thread, lock or caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dashinfer_lab.engine.batch import ChunkResult, ModelRunner
from dashinfer_lab.engine.foreign import described
from dashinfer_lab.engine.options import EngineOptions
from dashinfer_lab.engine.request import Request, RequestState, Span
from dashinfer_lab.engine.scheduler import Scheduler
from dashinfer_lab.engine.sharing import PageSharing
from dashinfer_lab.engine.step_budget import Assignment
from dashinfer_lab.engine.step_cost import StepWork
from dashinfer_lab.errors import (
    DashInferLabError,
    DeadlineError,
    EngineError,
    NonFiniteError,
)
from dashinfer_lab.events import StepEvent
from dashinfer_lab.kvcache import PagePool, PrefixCache

__all__ = ["EngineCore", "StepTotals"]

_log = logging.getLogger(__name__)
# Tokens of one call reach their readers together, and a newcomer waits for its end.
_LONGEST_CALL_SECONDS: Final = 0.025
# Where nobody reads before the end; who comes then ends the call, and so does who makes place.
_LONGEST_UNREAD_CALL_SECONDS: Final = 0.1
# Beside a busy thread of Python each call then waits for the interpreter: it is to be worth it.
_CALL_SECONDS_FOR_A_WAIT: Final = 9
_LONGEST_HELD_UP_CALL_SECONDS: Final = 0.05


@dataclass(slots=True)
class StepTotals:
    """What all steps so far add up to."""

    num_steps: int = 0
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    num_finished: int = 0
    num_preempted: int = 0
    num_prefix_hits: int = 0
    num_cached_tokens: int = 0
    num_expired: int = 0


class _StepTimes(NamedTuple):
    begin: float
    scheduled: float
    computed: float
    done: float


class EngineCore:
    """Owns the pages and the schedule. Used by one thread; the clock is passed in."""

    def __init__(
        self, runner: ModelRunner, options: EngineOptions, clock: Callable[[], float]
    ) -> None:
        self.pool: Final = PagePool(runner.num_pages, runner.page_size)
        self.prefixes: Final = PrefixCache(self.pool, options.prefix_cache_ttl)
        self._sharing: Final = PageSharing(
            self.pool,
            runner.prefix_key,
            self.prefixes if options.enable_prefix_caching else None,
            runner.copy_page,
        )
        self.scheduler: Final = Scheduler(self.pool, options.limits(runner), self._sharing)
        self.totals: Final = StepTotals()
        # Replaced, never changed in place: other threads subscribe while a step reads it.
        self.subscribers: tuple[Callable[[StepEvent], None], ...] = ()
        self._runner: Final = runner
        self._clock: Final = clock
        self._seconds_a_walk = 0.0
        self._held_up_seconds = 0.0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Request) -> None:
        """Take a request that passed admission."""
        self.scheduler.add(request)

    def cancel(self, request_id: int) -> None:
        """End a request wherever it stands and free its pages; nothing if it ended already."""
        request = self.scheduler.find(request_id)
        if request is not None:
            request.cancel(self._clock())
            self._let_go(request)

    def refuse(self, request: Request, error: DashInferLabError) -> None:
        """End a request that was never taken."""
        request.fail(error, self._clock())
        request.tell_end()

    def fail_all(self, error: Callable[[], DashInferLabError]) -> None:
        """End every request with an error of its own."""
        for request in tuple(self.scheduler.requests()):
            request.fail(error(), self._clock())
            self._let_go(request)

    def _let_go(self, request: Request) -> None:
        """Forget a finished request; who then hears of its end finds it gone."""
        self.scheduler.retire(request)
        request.tell_end()

    def step(self) -> None:
        """Compute one batch. An error of the model is an `EngineError` and leaves no way on."""
        before = replace(self.totals)
        begin = self._clock()
        self.prefixes.expire(begin)
        self._end_overdue(begin)
        if not self.has_work:
            return
        batch = self._next_batch(begin)
        work = _work(batch)
        predicted = self._predicted(work) if self.subscribers else None
        scheduled = self._clock()
        walks = self._compute(batch, begin)
        computed = self._clock()
        taken = computed - scheduled
        held_up = min(self._runner.held_up_seconds, taken)
        self._held_up_seconds += (held_up - self._held_up_seconds) / 4
        self._seconds_a_walk = (taken - held_up) / len(walks)
        self.scheduler.observe(work, taken / len(walks), len(walks))
        self.totals.num_decode_tokens += (len(walks) - 1) * len(batch)
        for ahead, results in enumerate(walks):
            self._hand_out(batch, results, computed, ahead)
        self.totals.num_steps += 1
        if self.subscribers:
            times = _StepTimes(begin, scheduled, computed, self._clock())
            expected = None if predicted is None else predicted * len(walks)
            self._publish(self._event(times, len(batch), before, expected))

    def _predicted(self, work: StepWork) -> float | None:
        cost = self.scheduler.cost
        return cost.predict(work) if cost.known else None

    def _next_batch(self, now: float) -> list[Assignment]:
        batch = self.scheduler.schedule()
        if not batch:
            raise EngineError(f"nothing can be scheduled though requests wait: {self.pool!r}")
        for request, span in batch:
            if request.first_scheduled_seconds is None:
                request.first_scheduled_seconds = now
            if request.state is RequestState.DECODE:
                self.totals.num_decode_tokens += span.length
            else:
                self.totals.num_prefill_tokens += span.length
        self.totals.num_preempted = self.scheduler.num_preempted
        self.totals.num_prefix_hits = self.scheduler.num_prefix_hits
        self.totals.num_cached_tokens = self.scheduler.num_cached_tokens
        return batch

    def _end_overdue(self, now: float) -> None:
        for request in self.scheduler.overdue(now):
            request.fail(_overdue(request), now)
            self.totals.num_expired += 1
            self.totals.num_finished += 1
            self._let_go(request)

    def _num_walks(self, batch: list[Assignment], now: float) -> int:
        """Tokens that every request of a batch may draw before anybody looks."""
        decoding = all(request.state is RequestState.DECODE for request, _ in batch)
        if not decoding or self._runner.max_walks == 1 or self.scheduler.keeps_back:
            return 1
        wanted = min(self._runner.max_walks, *(request.tokens_left for request, _ in batch))
        for seconds in self._call_seconds(batch, now):
            walks = min(wanted, int(seconds / max(self._seconds_a_walk, 1e-9)))
            if walks > 1 and self.scheduler.reach(batch, walks - 1):
                return walks
        return 1

    def _call_seconds(self, batch: list[Assignment], now: float) -> Iterator[float]:
        """How long a call may take, the longest first: the next one may do with fewer pages."""
        left = min(request.deadline_seconds for request in self.scheduler.requests()) - now
        if not self.subscribers and all(request.waits_for_end for request, _ in batch):
            yield min(_LONGEST_UNREAD_CALL_SECONDS, left)
        worth = _CALL_SECONDS_FOR_A_WAIT * self._held_up_seconds
        yield min(max(_LONGEST_CALL_SECONDS, min(worth, _LONGEST_HELD_UP_CALL_SECONDS)), left)

    def _compute(self, batch: list[Assignment], now: float) -> list[list[ChunkResult]]:
        """Results of every walk, request by request."""
        num_walks = self._num_walks(batch, now)
        chunks = [request.chunk(span, num_walks - 1) for request, span in batch]
        try:
            if num_walks > 1:
                walks = [list(results) for results in self._runner.walk(chunks, num_walks)]
            else:
                walks = [list(self._runner.step(chunks))]
        except BaseException as error:
            raise EngineError(
                f"the model failed in step {self.totals.num_steps} with {len(chunks)} requests: "
                f"{described(error)}; the engine has stopped, make a new one"
            ) from error
        for results in walks:
            if len(results) != len(chunks):
                raise EngineError(f"the model gave {len(results)} results for {len(chunks)} chunks")
        return walks

    def _hand_out(
        self, batch: list[Assignment], results: list[ChunkResult], now: float, ahead: int
    ) -> None:
        for (request, first), result in zip(batch, results, strict=True):
            if request.finished:
                continue  # in an earlier walk
            span = Span(first.start + ahead, first.length, first.logit_rows) if ahead else first
            if result.error is not None:
                request.fail(result.error, now)
            elif result.finite:
                request.num_computed = span.end
                self._sharing.keep(request)
                request.accept(span, result, now)
            else:
                self._sharing.forget(request)
                request.fail(_not_finite(request), now)
            if request.finished:
                self.totals.num_finished += 1
                self._let_go(request)

    def _event(
        self, times: _StepTimes, num_requests: int, before: StepTotals, predicted: float | None
    ) -> StepEvent:
        now = self.totals
        return StepEvent(
            index=before.num_steps,
            begin_seconds=times.begin,
            schedule_seconds=times.scheduled - times.begin,
            run_seconds=times.computed - times.scheduled,
            total_seconds=times.done - times.begin,
            num_prefill_tokens=now.num_prefill_tokens - before.num_prefill_tokens,
            num_decode_tokens=now.num_decode_tokens - before.num_decode_tokens,
            num_requests=num_requests,
            num_waiting=len(self.scheduler.waiting),
            num_preempted=now.num_preempted - before.num_preempted,
            num_finished=now.num_finished - before.num_finished,
            num_pages_used=self.pool.num_used,
            num_pages=self.pool.num_pages,
            num_pages_cached=self.pool.num_idle,
            num_prefix_hits=now.num_prefix_hits - before.num_prefix_hits,
            num_cached_tokens=now.num_cached_tokens - before.num_cached_tokens,
            num_expired=now.num_expired - before.num_expired,
            predicted_seconds=predicted,
        )

    def _publish(self, event: StepEvent) -> None:
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except BaseException:  # noqa: BLE001  # a watcher's fault must not end the requests
                _log.exception("a subscriber failed and is dropped: %r", subscriber)
                self.unsubscribe(subscriber)

    def subscribe(self, subscriber: Callable[[StepEvent], None]) -> None:
        """Tell a subscriber of every step from now on."""
        self.subscribers = (*self.subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[[StepEvent], None]) -> None:
        """Tell a subscriber no more."""
        self.subscribers = tuple(s for s in self.subscribers if s is not subscriber)


def _work(batch: list[Assignment]) -> StepWork:
    work = StepWork()
    for _, span in batch:
        work = work.with_span(span.start, span.length, span.num_logit_rows)
    return work


def _overdue(request: Request) -> DeadlineError:
    return DeadlineError(
        f"request {request.request_id} was not done within its timeout_seconds="
        f"{request.options.timeout_seconds:g}: give it more time, or ask for less"
    )


def _not_finite(request: Request) -> NonFiniteError:
    return NonFiniteError(
        f"request {request.request_id} met NaN or infinity near position {request.num_computed} "
        f"and ended; other requests go on. Check the checkpoint, or load it with weights='fp32'"
    )
