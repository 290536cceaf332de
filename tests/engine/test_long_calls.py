"""How many tokens one call draws: many where nobody reads before the end, and none too long."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from dashinfer_lab.engine import Chunk, ChunkResult, RequestHandle
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.options import EngineOptions
from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner
from tests.engine.test_scheduler import generation, run, tokens

TOKEN_SECONDS = 0.006
LONG = SamplingParams(temperature=0, max_tokens=60)


class _HeldUp(FakeRunner):
    machine: Machine
    walking = False

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        results = super().step(chunks)
        self.machine.seconds += 0 if self.walking else self.held_up_seconds
        return results

    def walk(self, chunks: Sequence[Chunk], most: int) -> list[list[ChunkResult]]:
        self.walking = True
        walks = super().walk(chunks, most)
        self.walking = False
        self.machine.seconds += self.held_up_seconds
        return walks


class Machine:
    """A core on which every token takes 6 ms, and every return from a call `held_up` seconds."""

    def __init__(
        self, num_pages: int = 64, held_up: float = 0.0, max_running: int | None = None
    ) -> None:
        self.seconds = 0.0
        self.runner = _HeldUp(
            max_walks=64, num_pages=num_pages, context_length=200, before_step=self.pass_time
        )
        self.runner.machine, self.runner.held_up_seconds = self, held_up
        options = EngineOptions(max_running=max_running)
        self.core = EngineCore(self.runner, options, lambda: self.seconds)

    def pass_time(self, chunks: Sequence[Chunk]) -> None:
        self.seconds += TOKEN_SECONDS

    def tokens_a_call(self, *requests: GenerationRequest) -> int:
        """Tokens that each request draws in a call once the time a token takes is known."""
        for request in requests:
            self.core.add(request)
        for _ in range(2):
            self.core.step()
        self.runner.batches.clear()
        self.core.step()
        return len(self.runner.batches)


def unread(request_id: int = 0, **options: Any) -> GenerationRequest:
    request = generation(request_id, [1, 2, 3 + request_id], 100, **options)
    request.events.whole = True
    return request


def test_who_reads_each_token_gets_them_every_25_ms() -> None:
    assert Machine().tokens_a_call(generation(0, [1, 2, 3], 100)) == 4


def test_a_call_for_unread_tokens_takes_a_tenth_of_a_second() -> None:
    machine = Machine()

    assert machine.tokens_a_call(unread(0), unread(1)) == 16


def test_calls_stay_long_though_others_wait_for_a_place() -> None:
    machine = Machine(max_running=2)

    assert machine.tokens_a_call(unread(0), unread(1), unread(2)) == 16


def test_a_call_ends_before_the_deadline_of_one_that_waits() -> None:
    machine = Machine(max_running=1)
    late = unread(1, served=RequestOptions(timeout_seconds=0.05))

    assert machine.tokens_a_call(unread(0), late) < 8


def test_one_reader_is_enough_to_keep_calls_short() -> None:
    assert Machine().tokens_a_call(unread(0), generation(1, [7], 100)) == 4


def test_what_a_text_or_a_run_of_ids_may_end_is_looked_at_often() -> None:
    assert Machine().tokens_a_call(unread(stop_words_ids=[[5, 6]])) == 4


def test_beside_a_busy_thread_calls_are_longer_than_their_wait_for_the_interpreter() -> None:
    machine = Machine(held_up=0.005)
    machine.core.add(generation(0, [1, 2, 3], 100))
    counts: list[int] = []
    while machine.core.has_work and len(counts) < 12:
        machine.runner.batches.clear()
        machine.core.step()
        counts.append(len(machine.runner.batches))

    assert counts[:2] == [1, 4]  # what one wait says may be chance
    assert max(counts) == 7  # 42 ms of tokens for 5 ms of waiting


def test_however_long_the_wait_readers_get_tokens_every_50_ms() -> None:
    assert Machine(held_up=0.5).tokens_a_call(generation(0, [1, 2, 3], 100)) == 8


def test_a_watcher_of_steps_sees_them_often() -> None:
    machine = Machine()
    machine.core.subscribe(lambda event: None)

    assert machine.tokens_a_call(unread()) == 4


def test_a_call_ends_before_a_deadline() -> None:
    machine = Machine()
    request = unread(served=RequestOptions(timeout_seconds=0.09))

    assert machine.tokens_a_call(request) < 13
    run(machine.core)
    assert machine.seconds < 0.09 + 2 * TOKEN_SECONDS


def test_where_pages_are_few_a_shorter_call_is_tried() -> None:
    machine = Machine(num_pages=4)  # 16 tokens, of which the prompt and two calls leave few

    assert 1 < machine.tokens_a_call(unread()) <= 4


def test_long_calls_draw_the_same_tokens() -> None:
    machine = Machine()
    machine.core.add(request := unread())

    run(machine.core)

    assert tokens(request) == machine.runner.answer([1, 2, 3], 100)


def test_a_newcomer_ends_a_call_with_the_token_at_work(make_engine: MakeEngine) -> None:
    newcomers: list[RequestHandle] = []

    def during(chunks: Sequence[Chunk]) -> None:
        if len(runner.batches) == 3:
            newcomers.append(engine.submit([1], LONG))

    runner = FakeRunner(max_walks=64, before_step=during, context_length=500)
    engine = make_engine(runner)

    output = engine.submit([9], LONG).completion(timeout=60)

    (newcomer,) = newcomers
    assert output.token_ids == runner.answer([9], 60)
    assert newcomer.completion(timeout=60).token_ids == runner.answer([1], 60)
    assert [len(batch) for batch in runner.batches[:5]] == [1, 1, 1, 1, 2]


def test_a_cancellation_ends_a_call_with_the_token_at_work(make_engine: MakeEngine) -> None:
    def during(chunks: Sequence[Chunk]) -> None:
        if len(runner.batches) == 3:
            handle.cancel()

    began = threading.Event()
    runner = FakeRunner(
        max_walks=64,
        before_step=lambda chunks: (began.wait(30), during(chunks))[1],
        context_length=500,
    )
    handle = make_engine(runner).submit([9], LONG)
    began.set()

    output = handle.completion(timeout=60)

    assert output.finish_reason == "cancelled"
    assert len(runner.batches) == 4


def test_who_listens_for_the_end_alone_is_told_once_and_reads_nothing_before() -> None:
    machine = Machine()
    told: list[int] = []
    request = generation(0, [1, 2, 3], 100)
    request.events.listen(lambda: told.append(machine.core.totals.num_decode_tokens), end_only=True)

    assert machine.tokens_a_call(request) == 16
    run(machine.core)
    assert told == [machine.core.totals.num_decode_tokens]
    request.events.listen(lambda: told.append(0), end_only=True)
    assert told[1:] == [0]
