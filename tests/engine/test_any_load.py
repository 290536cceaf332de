"""Any load at all, on few pages: sound after each step, and every answer that of a solo run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dashinfer_lab.engine import Chunk, EngineOptions, RequestOptions
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.logit_request import LogitRequest
from dashinfer_lab.engine.request import Request
from dashinfer_lab.errors import DeadlineError, EngineError
from dashinfer_lab.outputs import TokenEvent
from tests.engine.fake_runner import FakeRunner
from tests.engine.test_scheduler import generation, run

# Few different tokens, so that prompts often begin alike.
PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=20)
PRIORITIES = st.integers(-1, 1)
SALTS = st.sampled_from([None, None, "salt"])


@dataclass
class Asked:
    """A generation, what was asked of it, and what has been emitted."""

    request: GenerationRequest
    prompt: list[int]
    count: int
    emitted: list[TokenEvent]

    def drain(self) -> list[int]:
        """Ids of all events so far."""
        while not self.request.events.empty():
            self.emitted.append(self.request.events.take())
        return [event.token_id for event in self.emitted if event.token_id is not None]


class Load(RuleBasedStateMachine):
    """Requests start, are forked and continued, cancelled, preempted, run out of time, finish."""

    max_walks = 1
    options = EngineOptions(max_chunk_tokens=7, prefix_cache_ttl=30.0)
    token_seconds = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.runner = FakeRunner(
            num_pages=9,
            max_tokens=12,
            max_logit_rows=5,
            context_length=36,
            max_walks=self.max_walks,
            before_step=self.take_time,
        )
        self.now = 0.0
        self.core = EngineCore(self.runner, self.options, lambda: self.now)
        self.ids = itertools.count()
        self.generations: dict[int, Asked] = {}
        self.logits: dict[int, tuple[LogitRequest, list[int], list[int]]] = {}
        self.cancelled: set[int] = set()

    @rule(
        prompt=PROMPTS,
        count=st.integers(1, 16),
        priority=PRIORITIES,
        salt=SALTS,
        timeout=st.sampled_from([None, None, 3.0]),
    )
    def submit(
        self, prompt: list[int], count: int, priority: int, salt: str | None, timeout: float | None
    ) -> None:
        self.start(prompt, count, RequestOptions(priority, timeout, salt))

    @rule(prompt=PROMPTS, count=st.integers(1, 16), n=st.integers(2, 4), priority=PRIORITIES)
    def submit_choices(self, prompt: list[int], count: int, n: int, priority: int) -> None:
        served = RequestOptions(priority)
        leader = self.start(prompt, count, served)
        for _ in range(1, n):
            self.start(prompt, count, served, leader)

    @precondition(lambda self: self.generations)
    @rule(data=st.data(), more=st.lists(st.integers(0, 2), max_size=5), count=st.integers(1, 8))
    def fork(self, data: st.DataObject, more: list[int], count: int) -> None:
        """Go on from what a request has emitted so far, while it may be running."""
        asked = self.generations[data.draw(st.sampled_from(sorted(self.generations)))]
        history = [*asked.prompt, *asked.drain(), *more]
        if len(history) + count <= self.runner.context_length:
            self.start(history, count, asked.request.options)

    @rule(prompt=st.lists(st.integers(0, 2), min_size=1, max_size=30), data=st.data())
    def ask_for_logits(self, prompt: list[int], data: st.DataObject) -> None:
        wanted = st.sets(st.integers(0, len(prompt) - 1), min_size=1)
        positions = sorted(data.draw(wanted))
        request = LogitRequest(
            next(self.ids), prompt, positions, vocab_size=97, arrival_seconds=self.now
        )
        self.logits[request.request_id] = (request, prompt, positions)
        self.core.add(request)

    @precondition(lambda self: self.generations or self.logits)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from([*self.generations, *self.logits]))
        live = self.core.scheduler.find(request_id)
        self.core.cancel(request_id)
        if live is not None:
            self.cancelled.add(request_id)
            assert live.finished

    @rule(seconds=st.sampled_from([0.1, 1.0, 15.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.core.has_work)
    @rule()
    def preempt(self) -> None:
        """As a request of better rank would: the last that runs loses its pages."""
        scheduler = self.core.scheduler
        if scheduler.running:
            scheduler._preempt(scheduler.running[-1])  # pyright: ignore[reportPrivateUsage]

    @precondition(lambda self: self.core.has_work)
    @rule()
    def step(self) -> None:
        alive = [r for r in self.core.scheduler.requests() if r.deadline_seconds > self.now]
        first = min(alive, key=lambda request: request.rank, default=None)
        known = None if first is None else (first.num_computed, first.num_tokens)
        self.core.step()
        if first is not None and known is not None:
            assert first.finished or (first.num_computed, first.num_tokens) > known

    @invariant()
    def all_counts_agree(self) -> None:
        self.core.scheduler.check_integrity()
        self.core.prefixes.check_integrity()
        ranks = [request.rank for request in self.core.scheduler.running]
        assert len(ranks) <= self.runner.max_logit_rows

    def take_time(self, chunks: Sequence[Chunk]) -> None:
        self.now += self.token_seconds * sum(len(chunk.token_ids) for chunk in chunks)

    def start(
        self,
        prompt: list[int],
        count: int,
        served: RequestOptions,
        leader: GenerationRequest | None = None,
    ) -> GenerationRequest:
        request = generation(
            next(self.ids), prompt, count, served=served, leader=leader, arrival=self.now
        )
        self.generations[request.request_id] = Asked(request, prompt, count, [])
        self.core.add(request)
        return request

    def teardown(self) -> None:
        run(self.core, most_steps=5000)
        assert self.core.pool.num_used == 0
        for asked in self.generations.values():
            expected = self.runner.answer(asked.prompt, asked.count)
            got, last = asked.drain(), asked.emitted[-1]
            assert last.finish_reason is not None
            whole = last.finish_reason == "length"
            late = isinstance(last.error, DeadlineError)
            assert whole or late or asked.request.request_id in self.cancelled
            assert got == expected if whole else got == expected[: len(got)]
        for request, prompt, positions in self.logits.values():
            self.check_logits(request, prompt, positions)
        self.core.prefixes.clear()
        assert self.core.pool.num_free == self.core.pool.num_pages
        self.core.pool.check_integrity([])

    def check_logits(self, request: LogitRequest, prompt: list[int], positions: list[int]) -> None:
        answer = request.answer.get_nowait()
        assert request.answer.empty()
        if request.request_id in self.cancelled:
            assert isinstance(answer, EngineError)
            return
        assert not isinstance(answer, Exception)
        for row, position in zip(answer, positions, strict=True):
            assert (row == self.runner.logits(prompt[: position + 1])).all()


class LoadOfWalks(Load):
    """The same where requests draw several tokens between two looks."""

    max_walks = 5


class LoadOfTimedSteps(Load):
    """The same where steps have a time to hold: a prompt of more than five tokens is a long one."""

    token_seconds = 0.02


class LoadWithoutCache(Load):
    """The same where only choices share pages."""

    max_walks = 3
    options = EngineOptions(enable_prefix_caching=False)


def test_a_leader_outranks_its_followers_whatever_happens() -> None:
    options = EngineOptions(max_slowdown=None)
    core = EngineCore(FakeRunner(num_pages=9, max_tokens=12), options, lambda: 0.0)
    leader = generation(0, [1] * 10, 4)
    followers: list[Request] = [generation(i, [1] * 10, 4, leader=leader) for i in (1, 2)]
    core.add(leader)
    for follower in followers:
        core.add(follower)

    assert [r.request_id for r in core.scheduler.requests()] == [0, 1, 2]
    run(core)
    assert core.totals.num_prefill_tokens == 10 + 2


TestLoad = Load.TestCase
TestLoad.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLoadOfWalks = LoadOfWalks.TestCase
TestLoadOfWalks.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLoadOfTimedSteps = LoadOfTimedSteps.TestCase
TestLoadOfTimedSteps.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLoadWithoutCache = LoadWithoutCache.TestCase
TestLoadWithoutCache.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
