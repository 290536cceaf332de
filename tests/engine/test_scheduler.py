from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.drawing import Drawing
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.options import EngineOptions
from dashinfer_lab.engine.request import RequestState
from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.engine.text_stream import TextStream
from dashinfer_lab.errors import EngineError
from dashinfer_lab.sampling import SamplingParams
from tests.engine.fake_runner import FakeRunner, LetterDecoder


def make_core(runner: FakeRunner, **options: int | None) -> EngineCore:
    ticks = itertools.count()
    return EngineCore(runner, EngineOptions(**options), lambda: float(next(ticks)))


def generation(
    request_id: int,
    prompt: Sequence[int],
    max_tokens: int,
    stop: Sequence[str] = (),
    *,
    served: RequestOptions | None = None,
    leader: GenerationRequest | None = None,
    arrival: float = 0.0,
    **options: Any,
) -> GenerationRequest:
    params = SamplingParams(temperature=0, **options)
    return GenerationRequest(
        request_id,
        prompt,
        params,
        max_tokens=max_tokens,
        drawing=Drawing(params, prompt, seed=0, choice=0, num_ids=97, vocab_size=97),
        eos_ids=frozenset(),
        text=TextStream(LetterDecoder() if stop else None, stop),
        arrival_seconds=arrival,
        options=served,
        leader=leader,
    )


def tokens(request: GenerationRequest) -> list[int]:
    found: list[int] = []
    while not request.events.empty():
        token_id = request.events.take().token_id
        if token_id is not None:
            found.append(token_id)
    return found


def run(core: EngineCore, *, most_steps: int = 1000) -> int:
    for count in range(most_steps):
        if not core.has_work:
            return count
        core.step()
        core.scheduler.check_integrity()
    raise AssertionError(f"not done after {most_steps} steps")


def shapes(runner: FakeRunner) -> list[list[tuple[int, int]]]:
    return [[(c.request_id, len(c.token_ids)) for c in batch] for batch in runner.batches]


def test_decodes_come_first_and_prompts_share_what_is_left_of_the_budget() -> None:
    runner = FakeRunner(max_tokens=10)
    core = make_core(runner, max_slowdown=None)
    for i, length in enumerate([3, 12, 9]):
        core.add(generation(i, [i] * length, 4))
    run(core)

    assert shapes(runner)[:4] == [
        [(0, 3), (1, 7)],
        [(0, 1), (1, 5), (2, 4)],
        [(0, 1), (1, 1), (2, 5)],
        [(0, 1), (1, 1), (2, 1)],
    ]


def test_a_long_prompt_never_keeps_a_decode_out_of_a_step() -> None:
    runner = FakeRunner(max_tokens=8)
    core = make_core(runner)
    core.add(generation(0, [1], 30))
    core.step()
    core.add(generation(1, [2] * 90, 5))
    run(core)

    with_first = [shape for shape in shapes(runner) if shape[0][0] == 0]
    assert len(with_first) == 30
    assert all(sum(length for _, length in shape) <= 8 for shape in with_first)


def test_one_prompt_takes_no_more_than_a_chunk_of_a_step() -> None:
    runner = FakeRunner(max_tokens=20)
    core = make_core(runner, max_chunk_tokens=7)
    for i in range(3):
        core.add(generation(i, [i] * 15, 1))
    run(core)

    assert shapes(runner)[0] == [(0, 7), (1, 7), (2, 6)]
    assert all(length <= 7 for shape in shapes(runner) for _, length in shape)


def test_only_rows_that_someone_reads_are_asked_for() -> None:
    runner = FakeRunner(max_tokens=8)
    core = make_core(runner)
    core.add(generation(0, [1] * 20, 2))
    run(core)

    assert [batch[0].logit_rows for batch in runner.batches] == ["none", "none", "last", "last"]
    assert [b[0].sampling is None for b in runner.batches] == [True, True, False, False]


@pytest.mark.parametrize("num_pages", [8, 9, 13])
def test_two_requests_that_need_over_half_the_pages_each_both_finish(num_pages: int) -> None:
    runner = FakeRunner(num_pages=num_pages)
    core = make_core(runner)
    requests = [generation(i, [i, 3], 30) for i in range(2)]
    for request in requests:
        core.add(request)
    run(core)

    assert core.scheduler.num_preempted > 0
    assert [tokens(r) for r in requests] == [runner.answer([i, 3], 30) for i in range(2)]


def test_preemption_changes_no_token_of_anyone() -> None:
    prompts = [[i] * (1 + 2 * i) for i in range(6)]
    scarce, ample = FakeRunner(num_pages=12), FakeRunner(num_pages=64)
    answers: list[list[list[int]]] = []
    for runner in (scarce, ample):
        core = make_core(runner)
        requests = [generation(i, prompt, 25) for i, prompt in enumerate(prompts)]
        for request in requests:
            core.add(request)
        run(core)
        answers.append([tokens(request) for request in requests])
        assert (core.scheduler.num_preempted > 0) == (runner is scarce)

    assert answers[0] == answers[1]
    assert answers[0] == [ample.answer(prompt, 25) for prompt in prompts]


def test_the_oldest_gets_a_token_in_every_step_though_pages_are_short() -> None:
    runner = FakeRunner(num_pages=8)
    core = make_core(runner)
    oldest = generation(0, [7], 32)
    core.add(oldest)
    for i in range(1, 9):
        core.add(generation(i, [i] * 6, 20))
    for _ in range(32):
        core.step()
        core.scheduler.check_integrity()

    assert tokens(oldest) == runner.answer([7], 32)
    assert oldest.finished
    assert oldest.num_preemptions == 0


def test_the_youngest_is_preempted_and_is_the_first_to_come_back() -> None:
    runner = FakeRunner(num_pages=6)
    core = make_core(runner)
    requests = [generation(i, [i] * 3, 14) for i in range(4)]
    for request in requests:
        core.add(request)
    order: list[int] = []
    while core.has_work:
        core.step()
        waiting = [request.request_id for request in core.scheduler.waiting]
        assert waiting == sorted(waiting)
        order += [r.request_id for r in requests if r.finished and r.request_id not in order]

    assert core.scheduler.num_preempted > 0
    assert order == [0, 1, 2, 3]


def test_a_newcomer_waits_until_it_fits_beside_those_that_grow() -> None:
    runner = FakeRunner(num_pages=5)
    core = make_core(runner)
    core.add(generation(0, [1] * 4, 9))  # 1 page now, 3 at last
    core.add(generation(1, [2] * 16, 2))  # 4 pages: would leave none to grow
    core.step()

    assert [request.request_id for request in core.scheduler.running] == [0]
    run(core)
    assert core.scheduler.num_preempted == 0


def test_states_follow_the_drawing() -> None:
    core = make_core(FakeRunner(max_tokens=8))
    request = generation(0, [1] * 12, 2)
    core.add(request)
    seen = [request.state]
    while core.has_work:
        core.step()
        seen.append(request.state)

    assert seen == [
        RequestState.QUEUED,
        RequestState.PREFILL,
        RequestState.DECODE,
        RequestState.FINISHED,
    ]
    with pytest.raises(EngineError, match="cannot go from finished to queued"):
        request.preempt()


def test_decodes_alone_draw_several_tokens_at_a_time() -> None:
    runner = FakeRunner(max_walks=4)
    core = EngineCore(runner, EngineOptions(), lambda: 0.0)
    core.add(request := generation(0, [1, 2, 3], 10))

    steps = run(core)

    assert steps == 1 + 3  # the prompt, then 4, 4 and the last one
    assert tokens(request) == runner.answer([1, 2, 3], 10)
    assert core.totals.num_decode_tokens == 9


def test_a_slow_model_is_looked_at_after_every_token() -> None:
    runner = FakeRunner(max_walks=4)
    core = make_core(runner)  # a second passes at every look at the clock
    core.add(generation(0, [1, 2, 3], 10))

    assert run(core) == 10


def test_a_prompt_ends_the_walks_of_others() -> None:
    runner = FakeRunner(max_walks=4, max_tokens=6)
    core = EngineCore(runner, EngineOptions(), lambda: 0.0)
    core.add(generation(0, [1, 2, 3], 30))
    for _ in range(4):  # the prompt, and enough of decodes alone to tell what they take
        core.step()
    core.add(generation(1, [5] * 20, 3))
    runner.batches.clear()
    core.step()

    assert shapes(runner) == [[(0, 1), (1, 5)]]


def test_walks_stop_behind_a_stop_id_and_a_stop_text() -> None:
    runner = FakeRunner(max_walks=8)
    expected = runner.answer([1, 2, 3], 10)
    assert len(set(expected[:5])) == 5
    for stops, steps in (({"stop_token_ids": [expected[4]]}, 1 + 4), ({}, 1 + 8)):
        runner.batches.clear()
        core = EngineCore(runner, EngineOptions(), lambda: 0.0)
        letters = "".join(chr(ord("A") + token) for token in expected[3:5])
        stop = () if stops else (letters,)
        core.add(request := generation(0, [1, 2, 3], 20, stop=stop, **stops))
        run(core)

        assert tokens(request) == expected[:5]
        assert len(runner.batches) == steps
        assert core.pool.num_used == 0
