from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.errors import ConfigError, EngineError
from dashinfer_lab.profiling import OpProfile, ProfileRecorder
from tests.model.tiny_artifact import tiny_artifact
from tests.profiling.conftest import PARAMS, PROMPTS


def test_as_profile_on_profiles_from_the_load_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AS_PROFILE", "ON")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    with LLM(tiny_artifact(tmp_path / "tiny", "fp32").directory, threads=1) as llm:
        llm.generate(PROMPTS[0], PARAMS)
        inner = llm.profile(PROMPTS[1], PARAMS, roof=False)
        text = llm.get_op_profiling_info()

    assert "=== prefill: 2 steps, 80 tokens" in text
    assert "=== decode: 8 steps, 8 tokens" in text
    assert text.count("*** forward ***") == 2
    assert len(inner.steps) == 5


def test_without_it_the_report_says_how_to_get_one(llm: LLM) -> None:
    with pytest.raises(EngineError, match="set AS_PROFILE=ON"):
        llm.get_op_profiling_info()


def test_another_value_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AS_PROFILE", "maybe")
    with pytest.raises(ConfigError, match="AS_PROFILE='maybe'"):
        LLM(tiny_artifact(tmp_path / "tiny", "fp32").directory, threads=1)


def test_a_long_recording_keeps_the_latest_steps_and_says_so(batch: OpProfile) -> None:
    recorder = ProfileRecorder(batch.ops, max_steps=2)
    for step in batch.steps:
        recorder.add(step)
    profile = OpProfile.of(recorder)

    assert profile.steps == batch.steps[-2:]
    assert profile.num_dropped == len(batch.steps) - 2
    assert f"{profile.num_dropped} earlier steps were not kept" in profile.report("en")
