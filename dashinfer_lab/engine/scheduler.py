"""Decide what the next step computes; knows requests, pages and costs, not models or threads.

    waiting (first first)  ──admit──▶  running (first first)  ──▶ finished
            ▲                                   │
            └────── preempt (the last) ─────────┘        all running rank before all waiting

A rank is the time of arrival, later by ten seconds for each level of priority, so that no request
is passed for ever. A newcomer of better rank than one that runs takes its place. A request owns
pages for all its known tokens as long as it runs, so that only a decode can meet an empty pool. It
then takes the pages of the last; the last itself waits. The first can take everybody's pages and,
by admission, fits alone: it always progresses.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from typing import Final

from dashinfer_lab.engine.request import Request, RequestState
from dashinfer_lab.engine.request_options import SECONDS_A_PRIORITY
from dashinfer_lab.engine.sharing import Found, PageSharing
from dashinfer_lab.engine.step_budget import Assignment, StepBudget, StepCredit, StepLimits
from dashinfer_lab.engine.step_cost import StepCost, StepWork
from dashinfer_lab.errors import EngineError
from dashinfer_lab.kvcache import PagePool

__all__ = ["Scheduler"]


class Scheduler:
    """Continuous batching: requests join and leave between any two steps."""

    def __init__(self, pool: PagePool, limits: StepLimits, sharing: PageSharing) -> None:
        self.waiting: Final[list[Request]] = []
        self.running: Final[list[Request]] = []
        self.num_preempted = 0
        self.num_prefix_hits = 0
        self.num_cached_tokens = 0
        self.cost: Final = StepCost()
        self._pool: Final = pool
        self._limits: Final = limits
        self._sharing: Final = sharing
        self._credit: Final = StepCredit(limits)
        self._budget = StepBudget(limits, self.cost, self._credit.seconds)
        self._latest_arrival = float("-inf")
        self._num_added = 0

    def add(self, request: Request) -> None:
        """Queue a request behind all others of its priority."""
        self._latest_arrival = max(self._latest_arrival, request.arrival_seconds)
        later = SECONDS_A_PRIORITY * request.options.priority
        request.rank = (self._latest_arrival + later, self._num_added)
        self._num_added += 1
        insort(self.waiting, request, key=_rank)

    def schedule(self) -> list[Assignment]:
        """Choose the spans of the next step: decodes, then prompts begun, then newcomers."""
        self._let_first_in()
        first = self.running[0] if self.running else None
        budget = StepBudget(self._limits, self.cost, self._credit.seconds, first)
        self._budget = budget
        for request in self._running_in(RequestState.DECODE):
            if self._make_room(request):
                budget.take_decode(request)
        self._let_short_in(budget)
        prompts = list(self._running_in(RequestState.PREFILL))
        budget.begin_prompts(prompts)
        for request in prompts:
            budget.take(request)
        while self._has_place and budget.has_room and self._admit_next():
            budget.take(self.running[-1])
        return budget.assignments

    def observe(self, work: StepWork, seconds: float, num_walks: int) -> None:
        """Learn from the step scheduled last: it walked so many times, `seconds` each."""
        self.cost.observe(work, seconds, self._budget.kind)
        self._credit.settle(self._budget, seconds, num_walks)

    @property
    def keeps_back(self) -> bool:
        """Whether the step scheduled last leaves prompts waiting so that decodes are alone."""
        return self._budget.keeps_back

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
        """All live requests, first ranks first."""
        yield from self.running
        yield from self.waiting

    def overdue(self, now_seconds: float) -> list[Request]:
        """Live requests whose time is over."""
        return [r for r in self.requests() if r.deadline_seconds <= now_seconds]

    def check_integrity(self) -> None:
        """Raise `EngineError` unless states, ranks, pages and owners agree."""
        ids = [request.request_id for request in self.requests()]
        if len(ids) != len(set(ids)):
            raise EngineError(f"a request is listed twice: {ids}")
        for listed in (self.running, self.waiting):
            if listed != sorted(listed, key=_rank):
                raise EngineError("requests are not listed by rank")
        for request in self.waiting:
            if request.state is not RequestState.QUEUED or request.pages is not None:
                raise EngineError(f"request {request.request_id} waits but is {request.state}")
        owned = [request.pages for request in self.running if request.pages is not None]
        self._pool.check_integrity(owned)
        for request, pages in zip(self.running, owned, strict=True):
            if pages.num_tokens_capacity < request.num_computed:
                raise EngineError(f"request {request.request_id} has computed beyond its pages")

    @property
    def _has_place(self) -> bool:
        return bool(self.waiting) and len(self.running) < self._limits.max_running

    def _running_in(self, state: RequestState) -> Iterator[Request]:
        """Those in a state when their turn comes: one preempted meanwhile is passed over."""
        return (request for request in tuple(self.running) if request.state is state)

    def _let_first_in(self) -> None:
        """Admit who ranks before one that runs, whose place is taken if need be."""
        while self.waiting and self.running and _rank(self.waiting[0]) < _rank(self.running[-1]):
            if not self._admit_next():
                if self._sharing.awaits_leader(self.waiting[0]):
                    return
                self._preempt(self.running[-1])

    def _let_short_in(self, budget: StepBudget) -> None:
        """Admit a short prompt where long ones would take every step until they are done."""
        short = [budget.is_short(request) for request in self._running_in(RequestState.PREFILL)]
        if short and not any(short) and self._has_place and budget.is_short(self.waiting[0]):
            self._admit_next()

    def _make_room(self, request: Request) -> bool:
        """Take pages for the next token, from the last if need be."""
        while not request.grow():
            last = self.running[-1]
            if last is request:
                return False
            self._preempt(last)
        return True

    def _preempt(self, request: Request) -> None:
        request.preempt()
        self.running.remove(request)
        insort(self.waiting, request, key=_rank)
        self.num_preempted += 1

    def _admit_next(self) -> bool:
        """Admit the first that waits, if it fits beside one more page for all that will grow."""
        if not self._has_place:
            return False
        request = self.waiting[0]
        if self._sharing.awaits_leader(request):
            return False
        found = self._sharing.find(request)
        reserved = sum(other.may_grow() for other in self.running)
        if self._sharing.pages_needed(request, found) + reserved > self._pool.num_free:
            return False
        del self.waiting[0]
        self._sharing.admit(request, found)
        self._count(found)
        insort(self.running, request, key=_rank)
        return True

    def _count(self, found: Found) -> None:
        self.num_prefix_hits += found.num_tokens > 0
        self.num_cached_tokens += found.num_tokens


def _rank(request: Request) -> tuple[float, int]:
    return request.rank
