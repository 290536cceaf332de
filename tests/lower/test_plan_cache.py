from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dashinfer_lab.convert import Artifact
from dashinfer_lab.lower import PlanLimits, ProgramPlan, cached_plan, lower
from dashinfer_lab.lower.plan_json import plan_from_json, plan_to_json
from tests.model.tiny_artifact import tiny_artifact

LIMITS = PlanLimits(max_tokens=40, max_logit_rows=8, num_threads=2, row_tile=6)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return tiny_artifact(tmp_path / "tiny", "a16w8")


def plans(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.json"))


def never(artifact: Artifact, limits: PlanLimits) -> ProgramPlan:
    raise AssertionError("this plan should come from disk")


def test_a_plan_reads_back_as_it_was(artifact: Artifact) -> None:
    plan = lower(artifact, LIMITS)

    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"limits": {}}', "nonsense"])
def test_other_text_is_no_plan(text: str) -> None:
    with pytest.raises(ValueError):
        plan_from_json(text)


def test_a_plan_is_made_once_and_kept_beside_the_artifact(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cached_plan(artifact, LIMITS, tmp_path / "elsewhere")
    monkeypatch.setattr("dashinfer_lab.lower.lowering.lower", never)

    assert cached_plan(artifact, LIMITS, tmp_path / "elsewhere") == made
    assert len(plans(artifact.directory / "lowered")) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_other_sizes_are_another_plan(artifact: Artifact, tmp_path: Path) -> None:
    cached_plan(artifact, LIMITS, tmp_path)
    other = cached_plan(artifact, replace(LIMITS, num_threads=3), tmp_path)

    assert other.limits.num_threads == 3
    assert len(plans(artifact.directory / "lowered")) == 2


def test_a_damaged_plan_is_made_anew(artifact: Artifact, tmp_path: Path) -> None:
    made = cached_plan(artifact, LIMITS, tmp_path)
    (path,) = plans(artifact.directory / "lowered")
    text = path.read_text()
    path.write_text(text.replace('"always"', '"never"', 1))

    assert cached_plan(artifact, LIMITS, tmp_path) == made
    assert path.read_text() == text


def test_a_read_only_artifact_keeps_its_plan_elsewhere(artifact: Artifact, tmp_path: Path) -> None:
    (artifact.directory / "lowered").write_text("in the way")

    cached_plan(artifact, LIMITS, tmp_path / "elsewhere")

    assert len(plans(tmp_path / "elsewhere")) == 1


def test_a_warm_start_reads_no_onnx_and_no_checkpoint(artifact: Artifact, tmp_path: Path) -> None:
    script = """
import sys
from dashinfer_lab import LLM

with LLM(sys.argv[1], threads=1) as llm:
    llm.logits([1, 2, 3])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(artifact.directory)]
    outputs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        for _ in range(2)
    ]

    assert [done.stderr for done in outputs] == ["", ""]
    assert "onnx_ir" in outputs[0].stdout
    loaded = set(outputs[1].stdout.split())
    assert loaded & {"onnx", "onnx_ir", "gguf", "transformers", "torch", "modelscope"} == set()
