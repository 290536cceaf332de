"""Decide what the next step computes; knows requests and pages, not models, threads or clocks.

    waiting (oldest first)  ──admit──▶  running (oldest first)  ──▶ finished
            ▲                                   │
            └───────── preempt (youngest) ──────┘        all running are older than all waiting

A request owns pages for all its known tokens as long as it runs, so that only a decode can meet an
empty pool. It then takes the pages of the youngest; the youngest itself waits. The oldest can
take everybody's pages and, by admission, fits alone: it always progresses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dashinfer_lab.engine.request import Request, RequestState, Span
from dashinfer_lab.errors import EngineError
from dashinfer_lab.kvcache import PagePool

__all__ = ["Assignment", "Scheduler", "StepLimits"]


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What one step may hold: tokens, tokens of one prompt, rows of logits, requests."""

    max_tokens: int
    max_chunk_tokens: int
    max_logit_rows: int
    max_running: int


class Assignment(NamedTuple):
    """A request and what the step computes of it."""

    request: Request
    span: Span


class Scheduler:
    """Continuous batching: requests join and leave between any two steps."""

    def __init__(self, pool: PagePool, limits: StepLimits) -> None:
        self.waiting: Final[deque[Request]] = deque()
        self.running: Final[list[Request]] = []
        self.num_preempted = 0
        self._pool: Final = pool
        self._limits: Final = limits

    def add(self, request: Request) -> None:
        """Queue a request behind all others."""
        self.waiting.append(request)

    def schedule(self) -> list[Assignment]:
        """Choose the spans of the next step: decodes, then prompts begun, then newcomers."""
        step = _Step(self._limits)
        for request in self._running_in(RequestState.DECODE):
            if self._make_room(request):
                step.take(request)
        for request in self._running_in(RequestState.PREFILL):
            step.take(request)
        while step.has_room and self._can_admit():
            step.take(self._admit())
        return step.assignments

    def reach(self, batch: Sequence[Assignment], num_ahead: int) -> bool:
        """Take pages for tokens beyond those of a step of decodes, as far as none must give any."""
        return all(request.reach(num_ahead) for request, _ in batch)

    def retire(self, request: Request) -> None:
        """Forget a finished request."""
        (self.running if request in self.running else self.waiting).remove(request)

    def find(self, request_id: int) -> Request | None:
        """The live request with this id."""
        return next((r for r in self.requests() if r.request_id == request_id), None)

    def requests(self) -> Iterator[Request]:
        """All live requests, oldest first."""
        yield from self.running
        yield from self.waiting

    def check_integrity(self) -> None:
        """Raise `EngineError` unless states, pages and owners agree."""
        ids = [request.request_id for request in self.requests()]
        if len(ids) != len(set(ids)):
            raise EngineError(f"a request is listed twice: {ids}")
        for request in self.waiting:
            if request.state is not RequestState.QUEUED or request.pages is not None:
                raise EngineError(f"request {request.request_id} waits but is {request.state}")
        owned = [request.pages for request in self.running if request.pages is not None]
        self._pool.check_integrity(owned)
        for request, pages in zip(self.running, owned, strict=True):
            if pages.num_tokens_capacity < request.num_computed:
                raise EngineError(f"request {request.request_id} has computed beyond its pages")

    def _running_in(self, state: RequestState) -> Iterator[Request]:
        """Those in a state when their turn comes: one preempted meanwhile is passed over."""
        return (request for request in tuple(self.running) if request.state is state)

    def _make_room(self, request: Request) -> bool:
        """Take pages for the next token, from the youngest if need be."""
        while not request.grow():
            youngest = self.running[-1]
            if youngest is request:
                return False
            self._preempt(youngest)
        return True

    def _preempt(self, request: Request) -> None:
        request.preempt()
        self.running.remove(request)
        self.waiting.appendleft(request)
        self.num_preempted += 1

    def _can_admit(self) -> bool:
        """Whether the eldest fits beside one more page for every request that will grow."""
        if not self.waiting or len(self.running) >= self._limits.max_running:
            return False
        reserved = sum(request.may_grow() for request in self.running)
        needed = self._pool.pages_for(self.waiting[0].num_tokens)
        return needed + reserved <= self._pool.num_free

    def _admit(self) -> Request:
        request = self.waiting.popleft()
        request.admit(self._pool)
        self.running.append(request)
        return request


class _Step:
    """A step being filled."""

    def __init__(self, limits: StepLimits) -> None:
        self.assignments: Final[list[Assignment]] = []
        self._max_chunk_tokens: Final = limits.max_chunk_tokens
        self._tokens_left = limits.max_tokens
        self._rows_left = limits.max_logit_rows

    @property
    def has_room(self) -> bool:
        """Whether another token can be taken."""
        return self._tokens_left > 0

    def take(self, request: Request) -> None:
        """Add the request's next span, as far as there is room."""
        span = request.plan(min(self._tokens_left, self._max_chunk_tokens), self._rows_left)
        if span is None:
            return
        self.assignments.append(Assignment(request, span))
        self._tokens_left -= span.length
        self._rows_left -= span.num_logit_rows
