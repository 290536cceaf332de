from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dashinfer_lab.config import cache_root
from dashinfer_lab.convert import Artifact
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.lower import PlanLimits, ProgramPlan, cached_plan, lower
from dashinfer_lab.lower.plan_json import plan_from_json, plan_to_json
from tests.busy_line import without_busy_line
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


def test_a_plan_is_made_once(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cached_plan(artifact, LIMITS, tmp_path / "lowered")
    monkeypatch.setattr("dashinfer_lab.lower.lowering.lower", never)

    assert cached_plan(artifact, LIMITS, tmp_path / "lowered") == made
    assert len(plans(tmp_path / "lowered")) == 1


def test_a_plan_that_came_with_the_model_is_not_read(artifact: Artifact, tmp_path: Path) -> None:
    made = cached_plan(artifact, LIMITS, tmp_path / "lowered")
    (path,) = plans(tmp_path / "lowered")
    text = plan_to_json(replace(made, arena_bytes=0))
    for place in (artifact.directory, artifact.directory / "lowered"):
        place.mkdir(exist_ok=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (place / path.name).write_text(f"{digest}\n{text}", encoding="utf-8")
    path.unlink()

    assert cached_plan(artifact, LIMITS, tmp_path / "lowered") == made


def test_other_sizes_are_another_plan(artifact: Artifact, tmp_path: Path) -> None:
    cached_plan(artifact, LIMITS, tmp_path)
    other = cached_plan(artifact, replace(LIMITS, num_threads=3), tmp_path)

    assert other.limits.num_threads == 3
    assert len(plans(tmp_path)) == 2


def test_another_configuration_or_layout_is_another_plan(
    artifact: Artifact, tmp_path: Path
) -> None:
    tensors = dict(artifact.tensors)
    name, tensor = next(iter(tensors.items()))
    tensors[name] = replace(tensor, offset=tensor.offset + 64)

    cached_plan(artifact, LIMITS, tmp_path)
    cached_plan(replace(artifact, config=replace(artifact.config, norm_eps=1)), LIMITS, tmp_path)
    with pytest.raises(ArtifactError, match="different conversions"):
        cached_plan(replace(artifact, tensors=tensors), LIMITS, tmp_path)
    assert len(plans(tmp_path)) == 2


def test_a_damaged_plan_is_made_anew(artifact: Artifact, tmp_path: Path) -> None:
    made = cached_plan(artifact, LIMITS, tmp_path)
    (path,) = plans(tmp_path)
    text = path.read_text()
    path.write_text(text.replace('"always"', '"never"', 1))

    assert cached_plan(artifact, LIMITS, tmp_path) == made
    assert path.read_text() == text


def test_a_plan_that_cannot_be_written_is_used_and_leaves_nothing(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    assert cached_plan(artifact, LIMITS, tmp_path / "lowered") == lower(artifact, LIMITS)
    assert list((tmp_path / "lowered").iterdir()) == []


def test_a_warm_start_reads_no_onnx_and_no_checkpoint(artifact: Artifact, tmp_path: Path) -> None:
    script = """
import sys
from dashinfer_lab import LLM

with LLM(sys.argv[1], threads=1) as llm:
    llm.logits([1, 2, 3])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    objects = cache_root() / "objects"  # compiled as by every other test; plans are its own
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "objects").symlink_to(objects)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DASHINFER_LAB_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", script, str(artifact.directory)]
    outputs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        for _ in range(2)
    ]

    assert [without_busy_line(done.stderr) for done in outputs] == ["", ""]
    assert "onnx_ir" in outputs[0].stdout
    loaded = set(outputs[1].stdout.split())
    assert loaded & {"onnx", "onnx_ir", "gguf", "transformers", "torch", "modelscope"} == set()
