"""Pages that several requests share: each answer is that of its solo run, with less computed."""

from __future__ import annotations

import pytest

from dashinfer_lab.engine import EngineOptions, RequestOptions
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.logit_request import LogitRequest
from dashinfer_lab.errors import ConfigError, RequestError
from dashinfer_lab.events import StepEvent
from dashinfer_lab.sampling import SamplingParams, SamplingState
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate
from tests.engine.test_scheduler import generation, run, shapes, tokens

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


def core_of(runner: FakeRunner, **options: float) -> EngineCore:
    return EngineCore(runner, EngineOptions(**options), lambda: 0.0)


def finished(core: EngineCore, request: GenerationRequest) -> list[int]:
    core.add(request)
    run(core)
    return tokens(request)


def test_the_full_pages_of_a_prompt_are_computed_once() -> None:
    runner = FakeRunner()
    core = core_of(runner)
    for i in range(2):
        assert finished(core, generation(i, PROMPT, 3)) == runner.answer(PROMPT, 3)

    assert [shape for shape in shapes(runner) if shape[0][1] > 1] == [[(0, 10)], [(1, 2)]]
    assert core.totals.num_cached_tokens == 8
    assert core.totals.num_prefix_hits == 1


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    runner = FakeRunner()
    core = core_of(runner)
    for i in range(2):
        assert finished(core, generation(i, PROMPT[:8], 3)) == runner.answer(PROMPT[:8], 3)

    assert [shape for shape in shapes(runner) if shape[0][1] > 1] == [[(0, 8)], [(1, 4)]]


def test_an_answer_is_found_again_as_part_of_the_next_prompt() -> None:
    runner = FakeRunner(max_walks=4)
    core = core_of(runner)
    first = finished(core, generation(0, PROMPT, 12))
    runner.batches.clear()
    prompt = [*PROMPT, *first, 1, 2]

    assert finished(core, request := generation(1, prompt, 5)) == runner.answer(prompt, 5)
    assert request.num_cached_tokens == 20  # 21 were computed: the last drawn token was not
    assert shapes(runner)[0] == [(1, 4)]


def test_tokens_that_were_drawn_ahead_and_dropped_are_not_remembered() -> None:
    runner = FakeRunner(max_walks=8)
    expected = runner.answer(PROMPT, 16)
    core = core_of(runner)
    stop = "".join(chr(ord("A") + token) for token in expected[3:5])
    core.add(request := generation(0, PROMPT, 16, stop=(stop,)))
    run(core)

    assert tokens(request) == expected[:5]
    core.prefixes.check_integrity()
    for length in (13, 14, 15, 16, 20):
        prompt = [*PROMPT, *expected][:length]
        request = generation(length, [*prompt, 1], 2)
        assert finished(core, request) == runner.answer([*prompt, 1], 2)
        assert request.num_cached_tokens <= 14 // 4 * 4 or length > 16


def test_nothing_is_shared_without_the_cache() -> None:
    runner = FakeRunner()
    core = core_of(runner, enable_prefix_caching=False)
    for i in range(2):
        finished(core, generation(i, PROMPT, 1))

    assert shapes(runner) == [[(0, 10)], [(1, 10)]]
    assert core.pool.num_idle == 0


def test_other_salts_share_nothing() -> None:
    runner = FakeRunner()
    core = core_of(runner)
    for i, salt in enumerate(["a", "b", None, "a"]):
        finished(core, generation(i, PROMPT, 1, served=RequestOptions(cache_salt=salt)))

    assert [length for ((_, length),) in shapes(runner)] == [10, 10, 10, 2]


def test_a_preempted_request_finds_its_own_pages_again() -> None:
    runner = FakeRunner(num_pages=9)
    core = core_of(runner)
    requests = [generation(i, [i, 3], 30) for i in range(2)]
    for request in requests:
        core.add(request)
    run(core)

    assert core.scheduler.num_preempted > 0
    assert [tokens(r) for r in requests] == [runner.answer([i, 3], 30) for i in range(2)]
    assert core.totals.num_cached_tokens > 0


def test_idle_pages_go_before_anyone_is_preempted() -> None:
    runner = FakeRunner(num_pages=8)
    core = core_of(runner)
    finished(core, generation(0, list(range(20, 44)), 1))
    assert core.pool.num_idle == 6

    assert finished(core, generation(1, [1, 2], 31)) == runner.answer([1, 2], 31)
    assert core.scheduler.num_preempted == 0


def test_logits_that_are_wanted_are_computed_though_pages_are_known() -> None:
    runner = FakeRunner()
    core = core_of(runner)
    finished(core, generation(0, PROMPT, 1))
    for i, positions in enumerate([[0, 9], [5], [8], [9]], start=1):
        request = LogitRequest(i, PROMPT, positions, vocab_size=97, arrival_seconds=0.0)
        core.add(request)
        run(core)
        answer = request.answer.get_nowait()
        for row, position in zip(answer, positions, strict=True):
            assert (row == runner.logits(PROMPT[: position + 1])).all()

    assert [length for ((_, length),) in shapes(runner)[1:]] == [1, 8, 1, 1, 1, 1, 1, 1]


def test_a_prompt_to_be_rated_skips_no_row(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    plain = engine.submit(PROMPT, SamplingParams(temperature=0, max_tokens=2))
    plain.completion(timeout=30)
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=1)
    rated = engine.submit(PROMPT, params)
    rated.completion(timeout=30)

    assert rated.output.token_ids == plain.output.token_ids == runner.answer(PROMPT, 2)
    found = rated.prompt_logprobs
    assert found is not None
    assert len(found) == len(PROMPT)
    assert all(token in entry for token, entry in zip(PROMPT[1:], found[1:], strict=True) if entry)
    assert rated.metrics is not None
    assert rated.metrics.num_cached_tokens == 0


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 10])
def test_choices_share_their_prompt_and_write_into_copies(
    make_engine: MakeEngine, length: int, caching: bool
) -> None:
    runner = FakeRunner()
    engine = make_engine(runner, enable_prefix_caching=caching)
    params = SamplingParams(n=3, temperature=1.0, seed=11, max_tokens=9)
    handles = engine.submit_choices(PROMPT[:length], params)
    answers = [handle.completion(timeout=30).token_ids for handle in handles]
    engine.close()

    states = [
        SamplingState(1.0, 0, 1.0, seed=11, choice=choice, position=0, num_logprobs=None)
        for choice in range(3)
    ]
    assert answers == [runner.answer(PROMPT[:length], 9, state) for state in states]
    assert shapes(runner)[:2] == [[(0, length)], [(0, 1), (1, 1), (2, 1)]]
    assert runner.num_copied == (0 if length in (1, 5) else 2)
    assert engine.stats().num_cached_tokens == 2 * (length - 1)


def test_a_choice_whose_leader_was_cancelled_computes_the_prompt_itself(
    make_engine: MakeEngine,
) -> None:
    gate = Gate()
    runner = FakeRunner(before_step=gate, max_tokens=4)
    engine = make_engine(runner)
    params = SamplingParams(n=2, temperature=1.0, seed=3, max_tokens=4)
    leader, other = engine.submit_choices(PROMPT, params)
    gate.wait_for_step()
    leader.cancel()
    gate.open()

    state = SamplingState(1.0, 0, 1.0, seed=3, choice=1, position=0, num_logprobs=None)
    assert other.completion(timeout=30).token_ids == runner.answer(PROMPT, 4, state)
    assert leader.completion(timeout=30).finish_reason == "cancelled"


def test_pages_of_a_request_that_met_nan_are_not_handed_on() -> None:
    runner = FakeRunner(max_tokens=4, poison=9)
    core = core_of(runner)
    core.add(generation(0, PROMPT, 3))
    run(core)

    assert len(core.prefixes) == 0
    assert core.pool.num_free == core.pool.num_pages
    core.pool.check_integrity([])


def test_old_pages_are_forgotten_after_their_time() -> None:
    now = [0.0]
    runner = FakeRunner()
    core = EngineCore(runner, EngineOptions(prefix_cache_ttl=60.0), lambda: now[0])
    for i, second in enumerate([0.0, 50.0, 100.0, 170.0]):
        now[0] = second
        finished(core, generation(i, PROMPT, 1))

    assert [length for ((_, length),) in shapes(runner)] == [10, 2, 2, 10]


def test_a_step_tells_what_was_found(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seen: list[StepEvent] = []
    engine.subscribe(seen.append)
    handles = [engine.submit(PROMPT, SamplingParams(max_tokens=1)) for _ in range(1)]
    handles[0].completion(timeout=30)
    handle = engine.submit(PROMPT, SamplingParams(max_tokens=1))
    handle.completion(timeout=30)
    engine.close()

    assert [(e.num_prefix_hits, e.num_cached_tokens) for e in seen] == [(0, 0), (1, 8)]
    assert [(e.num_pages_used, e.num_pages_cached) for e in seen] == [(0, 2), (0, 2)]
    assert handle.metrics is not None
    assert handle.metrics.num_cached_tokens == 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", 1.5),
        ("priority", True),
        ("timeout_seconds", 0),
        ("timeout_seconds", float("nan")),
        ("cache_salt", ""),
        ("cache_salt", 3),
    ],
)
def test_bad_request_options_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=f"{name}="):
        RequestOptions(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_prefix_caching", 2),
        ("prefix_cache_ttl", 0),
        ("max_slowdown", 1),
        ("max_step_seconds", float("inf")),
        ("short_prompt_seconds", 0),
    ],
)
def test_bad_engine_options_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        EngineOptions(**{name: value})
