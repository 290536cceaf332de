from __future__ import annotations

import itertools

import pytest

from dashinfer_lab.engine import Engine
from dashinfer_lab.events import RequestMetrics, StepEvent
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner


def test_every_step_is_told_with_what_it_computed(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner, max_chunk_tokens=4)
    seen: list[StepEvent] = []
    end = engine.subscribe(seen.append)
    engine.submit([1] * 10, SamplingParams(max_tokens=3)).completion(timeout=30)
    engine.compute_logits([1])  # the steps before it are told by now
    end()
    engine.submit([1]).completion(timeout=30)
    engine.close()

    told = seen[:5]
    assert [event.index for event in told] == [0, 1, 2, 3, 4]
    assert [event.num_prefill_tokens for event in told] == [4, 4, 2, 0, 0]
    assert [event.num_decode_tokens for event in told] == [0, 0, 0, 1, 1]
    assert [event.num_finished for event in told] == [0, 0, 0, 0, 1]
    assert [event.num_pages_used for event in told] == [3, 3, 3, 3, 0]
    assert all(event.num_requests == 1 and event.num_pages == 64 for event in told)
    assert len(seen) == 6


def test_where_nobody_listens_no_event_is_made(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def watched(**parts: object) -> None:
        made.append(parts)

    monkeypatch.setattr("dashinfer_lab.engine.core.StepEvent", watched)
    engine = make_engine()
    engine.submit([1], SamplingParams(max_tokens=9)).completion(timeout=30)

    assert made == []
    engine.subscribe(lambda event: None)
    engine.submit([1]).completion(timeout=30)
    engine.close()
    assert made


def test_the_parts_of_a_step_add_up(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seen: list[StepEvent] = []
    engine.subscribe(seen.append)
    engine.submit([1]).completion(timeout=30)
    engine.close()

    for event in seen:
        assert event.schedule_seconds >= 0
        assert event.run_seconds >= 0
        assert event.schedule_seconds + event.run_seconds <= event.total_seconds * (1 + 1e-9)


def test_a_request_is_timed_by_the_engine_s_clock() -> None:
    ticks = itertools.count()
    with Engine(FakeRunner(), clock=lambda: float(next(ticks))) as engine:
        handle = engine.submit([1, 2, 3], SamplingParams(max_tokens=4))
        events = list(handle)
    metrics = handle.metrics

    assert metrics is not None
    assert metrics.arrival_seconds == 0
    # A step without subscribers reads the clock three times: begin, scheduled, computed.
    assert [event.time_seconds for event in events] == [3, 6, 9, 12]
    assert (metrics.queue_seconds, metrics.ttft_seconds, metrics.seconds_per_token) == (1, 3, 3)
    assert (metrics.num_prompt_tokens, metrics.num_output_tokens) == (3, 4)
    assert metrics.finished_seconds == 12


def test_what_has_not_come_has_no_time() -> None:
    metrics = RequestMetrics(5.0, None, None, None, None, 3, 0, 0)

    assert (metrics.queue_seconds, metrics.ttft_seconds, metrics.seconds_per_token) == (
        None,
        None,
        None,
    )


def test_totals_count_all_steps(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for token in range(2):
        engine.submit([token] * 5, SamplingParams(max_tokens=3)).completion(timeout=30)
    engine.close()
    stats = engine.stats()

    assert (stats.num_prefill_tokens, stats.num_decode_tokens) == (10, 4)
    assert (stats.num_steps, stats.num_finished, stats.num_running) == (6, 2, 0)
    assert "closed: 0 running, 0 queued, 0/64 pages" in repr(engine)
