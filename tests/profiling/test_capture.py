from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.errors import ConfigError, EngineError
from dashinfer_lab.profiling import Capture, ChunkSpan, OpProfile
from tests.profiling.conftest import PARAMS, PROMPTS

# Choices of one prompt are queued together, so that they decode together.
TOGETHER = SamplingParams(n=3, temperature=1.0, seed=1, max_tokens=5, ignore_eos=True)


def prompt(request_id: int, start: int, length: int, *, last: bool = True) -> ChunkSpan:
    return ChunkSpan(request_id, start, length, False, last, 0.0)


def drawn(request_id: int) -> ChunkSpan:
    return ChunkSpan(request_id, 9, 1, True, True, 0.0)


def taken(capture: Capture, steps: list[list[ChunkSpan]]) -> list[int]:
    """Indices of the steps that the capture records."""
    state = capture.begin()
    found: list[int] = []
    for index, chunks in enumerate(steps):
        if state.wants(chunks):
            state.take(chunks)
            found.append(index)
    return found


def test_one_prefill_is_all_chunks_of_the_nth_request() -> None:
    steps = [
        [prompt(7, 0, 4)],
        [drawn(7), prompt(8, 0, 4, last=False)],
        [drawn(7)],
        [drawn(7), prompt(8, 4, 2)],
        [drawn(8), prompt(9, 0, 3)],
    ]

    assert taken(Capture.prefill(1), steps) == [0]
    assert taken(Capture.prefill(2), steps) == [1, 3]
    assert taken(Capture.prefill(3), steps) == [4]


def test_a_request_that_had_begun_before_is_not_counted() -> None:
    steps = [[prompt(7, 32, 4)], [prompt(8, 0, 4)]]

    assert taken(Capture.prefill(1), steps) == [1]


def test_decode_steps_count_once_the_batch_is_full() -> None:
    steps = [
        [drawn(1)],
        [drawn(1), drawn(2)],
        [drawn(1), prompt(3, 0, 4)],
        [drawn(1), drawn(2), drawn(3)],
        [drawn(1)],
        [drawn(1), drawn(2)],
    ]

    assert taken(Capture.decode(2, batch=2), steps) == [1, 3]
    assert taken(Capture.decode(9, batch=2), steps) == [1, 3, 5]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_an_impossible_count_is_refused(value: int) -> None:
    with pytest.raises(ConfigError, match="whole number of at least 1"):
        Capture.prefill(value)
    with pytest.raises(ConfigError, match="batch="):
        Capture.decode(1, batch=value)


def test_exactly_so_many_decode_steps_are_recorded_and_saved(llm: LLM, tmp_path: Path) -> None:
    target = tmp_path / "decode.json"
    with llm.profiling(Capture.decode(2, batch=3), save=target) as recorder:
        llm.generate(PROMPTS[0], TOGETHER)
        assert recorder.wait(0)

    assert [len(step.shape.chunks) for step in recorder.steps] == [3, 3]
    saved = json.loads(target.read_text(encoding="utf-8"))
    assert "prefill" not in saved
    assert saved["decode"]["steps"] == 2
    assert saved["roof"]["threads"] == llm.threads


def test_one_prefill_of_a_running_engine_is_recorded(llm: LLM) -> None:
    with llm.profiling(Capture.prefill(2)) as recorder:
        for each in PROMPTS:
            llm.generate(each, PARAMS)

    profile = OpProfile.of(recorder)
    assert profile.prefill.num_tokens == len(PROMPTS[1]["prompt_token_ids"])
    assert not profile.decode.steps


def test_a_capture_that_did_not_come_says_what_is_missing(llm: LLM, tmp_path: Path) -> None:
    target = tmp_path / "never.json"
    many, second = Capture.decode(2, batch=9), Capture.prefill(2)
    with (
        pytest.raises(EngineError, match=r"0 of 2 .* of 9 requests .* had 3"),
        llm.profiling(many, save=target),
    ):
        llm.generate(PROMPTS[0], TOGETHER)
    with (
        pytest.raises(EngineError, match="request 2 did not begin, only 1 did"),
        llm.profiling(second),
    ):
        llm.generate(PROMPTS[0], PARAMS)

    assert not target.exists()


def test_an_error_inside_is_not_hidden_by_a_missing_capture(llm: LLM) -> None:
    with pytest.raises(ZeroDivisionError), llm.profiling(Capture.prefill(5)):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("profile.pdf", "does not say in which form"), ("no/profile.json", "is not a directory")],
)
def test_a_file_that_cannot_be_written_is_refused_at_once(
    llm: LLM, tmp_path: Path, name: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint), llm.profiling(save=tmp_path / name):
        pytest.fail("nothing may run")


def test_after_a_capture_the_plain_walker_runs(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []
    program = llm._runner.program
    profile = program.profile
    monkeypatch.setattr(program, "profile", lambda: timed.append(1) or profile())
    with llm.profiling(Capture.decode(1)) as recorder:
        llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
        assert llm._runner._recorders == ()

    assert len(recorder.steps) == len(timed) == 1
