from __future__ import annotations

from dataclasses import replace

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.events import StepEvent
from dashinfer_lab.widgets import EngineView
from dashinfer_lab.widgets.engine_history import SLICE_SECONDS, EngineHistory
from tests.widgets.conftest import PARAMS, PROMPT, eventually


def _step(begin: float, seconds: float, decoded: int, requests: int = 1) -> StepEvent:
    return StepEvent(0, begin, 0.0, seconds, seconds, 0, decoded, requests, 0, 0, 0, 1, 8)


def test_tokens_of_a_long_step_are_shared_out_over_its_time() -> None:
    history = EngineHistory()

    history.add(_step(10.0, 1.0, 40, requests=3))

    slices = history.slices(11.0)
    assert [each.num_decode_tokens for each in slices] == pytest.approx([10.0] * 4)
    assert {each.num_requests for each in slices} == {3}
    assert history.tokens_per_second(11.0) == pytest.approx(40.0)


def test_the_rate_comes_down_where_nothing_happens() -> None:
    history = EngineHistory()
    for index in range(8):
        history.add(_step(10 + index * SLICE_SECONDS, SLICE_SECONDS, 5))

    assert history.tokens_per_second(12.0) == pytest.approx(20.0)
    assert history.tokens_per_second(12.5) == pytest.approx(10.0)
    assert history.tokens_per_second(14.0) == 0.0


def test_only_half_a_minute_is_kept() -> None:
    history = EngineHistory()
    for second in range(100):
        history.add(_step(float(second), 0.5, 1))
    history.add(_step(100.0, 300.0, 1200))

    assert len(history.slices(400.0)) == 120


def test_the_engine_is_watched_only_while_the_view_is_shown(tiny: LLM) -> None:
    core = tiny.engine._loop.core
    view = EngineView(tiny, lang="en")
    _ = view.widget, view.html
    assert core.subscribers == ()

    view._repr_mimebundle_()
    view._repr_mimebundle_()
    assert len(core.subscribers) == 1
    view.close()

    assert core.subscribers == ()


def test_steps_are_drawn_and_end_in_an_idle_engine(tiny: LLM) -> None:
    view = EngineView(tiny.engine, lang="en")
    _ = view.widget
    view.start()
    finished = tiny.engine.stats().num_finished

    tiny.generate([PROMPT] * 3, replace(PARAMS, max_tokens=400))

    assert eventually(lambda: f"<b>{finished + 3}</b><span>finished" in view.picture.value)
    assert eventually(lambda: "<b>0.0</b><span>tokens/s" in view.picture.value)
    assert eventually(lambda: not view._pulse.running)
    assert max(each.num_requests for each in view.history._slices) == 3
    view.close()


def test_a_view_that_is_not_drawn_on_keeps_its_history_without_a_thread(tiny: LLM) -> None:
    view = EngineView(tiny).start()

    tiny.generate([PROMPT], PARAMS)

    assert view.history.last is not None
    assert not view._pulse.running
    assert "0 running" in repr(view)
    view.stop()


def test_a_closed_engine_is_said_to_be_closed(tiny_directory: object) -> None:
    llm = LLM(tiny_directory, threads=1)
    view = EngineView(llm, lang="en")

    llm.close()

    assert "The engine was closed." in view.html
