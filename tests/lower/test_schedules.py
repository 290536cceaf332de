"""A program by measured schedules: kept once, used by every load, equal in every bit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab.config import cache_root
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import Chunk
from dashinfer_lab.engine.loading import LoadOptions, load_runner
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.lower import PlanLimits, ProgramPlan, cached_plan, measure_schedules
from dashinfer_lab.lower.schedules import kind_of, scheduled_plan, with_choice, work_parts
from jit_kernels.autotune import Choice, ChoiceStore, machine_parts
from jit_kernels.compiler.jit import compiler_for
from jit_kernels.isa import detect
from jit_kernels.kernels.linear_schedule import Schedule, Trial, row_tiles, trials
from jit_kernels.kernels.linear_tiles import row_tile
from jit_kernels.runtime.threads import Pool
from tests.model.tiny_artifact import tiny_artifact

ISA = detect()
LIMITS = PlanLimits(
    max_tokens=120, max_logit_rows=64, num_threads=2, row_tile=row_tile(ISA), kv_format="fp32"
)
TRIED = replace(Schedule.default(ISA), few_ahead=1024, many_ahead=2048, block_steps=128)
PROMPT = list(range(3, 75))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("artifacts") / "tiny", "a16w8")


@pytest.fixture
def plan(artifact: Artifact, tmp_path: Path) -> ProgramPlan:
    return cached_plan(artifact, LIMITS, tmp_path)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2, compiler_for(ISA, cache_root() / "objects")) as made:
        yield made


def words(plan: ProgramPlan) -> set[object]:
    return {op.constants.get("schedule") for op in plan.ops if kind_of(op) is not None}


def logits(artifact: Artifact, autotune: bool = False) -> tuple[np.ndarray, Choice | None]:
    options = LoadOptions(threads=2, max_batch_tokens=120, kv_cache_bytes=2**21, autotune=autotune)
    loaded = load_runner(artifact, options)
    try:
        loaded.runner.step([Chunk(0, PROMPT[:40], 0, (2, 0, 1), "none", None)])
        chunks = [Chunk(0, PROMPT[40:], 40, (2, 0, 1), "all", None)]
        chunks.append(Chunk(1, PROMPT, 0, (5, 3, 4), "last", None))
        results = loaded.runner.step(chunks)
        return np.array(results[0].logits), loaded.schedules
    finally:
        loaded.runner.close()


def test_a_stored_choice_is_used_and_changes_no_bit(
    artifact: Artifact, tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, nothing = logits(artifact)
    assert nothing is None
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path))
    (tmp_path / "objects").symlink_to(Path(str(pool.compiler.cache.directory)))
    limits = replace(LIMITS)
    plan = cached_plan(artifact, limits, tmp_path / "lowered")
    kinds = {kind for op in plan.ops if (kind := kind_of(op)) is not None}
    choice = Choice(row_tiles(ISA)[1], dict.fromkeys(kinds, TRIED.word), {})
    parts = (*machine_parts(ISA, 2), *work_parts(plan))
    ChoiceStore(tmp_path / "schedules").write(parts, choice)

    actual, used = logits(artifact)

    assert used == choice
    assert np.array_equal(actual.view(np.int32), expected.view(np.int32))


def test_every_linear_layer_gets_its_schedule_and_nothing_else_does(plan: ProgramPlan) -> None:
    kinds = {kind for op in plan.ops if (kind := kind_of(op)) is not None}
    choice = Choice(row_tile(ISA), dict.fromkeys(kinds, TRIED.word), {})

    scheduled = with_choice(plan, choice)

    assert words(plan) == {None}
    assert words(scheduled) == {TRIED.word}
    assert [op.constants for op in scheduled.ops if kind_of(op) is None] == [
        op.constants for op in plan.ops if kind_of(op) is None
    ]
    assert with_choice(plan, Choice(row_tile(ISA), {}, {})) == plan


def test_measuring_keeps_a_choice_that_the_next_load_uses(
    artifact: Artifact,
    plan: ProgramPlan,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = [trials(ISA)[0], Trial(TRIED, row_tile(ISA))]
    monkeypatch.setattr(measure_schedules, "trials", lambda isa: quick)
    monkeypatch.setattr(type(pool), "num_active", property(lambda self: self.num_threads))
    clock = map(float, count())

    scheduled, choice = scheduled_plan(
        artifact, plan, pool, tmp_path, "missing", lambda: next(clock)
    )

    assert choice is not None
    assert choice.row_tile == row_tile(ISA)
    assert set(choice.schedules) == {kind for op in plan.ops if (kind := kind_of(op))}
    assert scheduled == with_choice(plan, choice)
    monkeypatch.setattr(measure_schedules, "measured_choice", None)
    for autotune in ("off", "missing"):
        assert scheduled_plan(artifact, plan, pool, tmp_path, autotune) == (scheduled, choice)


def test_a_busy_machine_is_told_and_nothing_is_kept(
    artifact: Artifact,
    plan: ProgramPlan,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(measure_schedules, "trials", lambda isa: [trials(ISA)[0]])
    monkeypatch.setattr(type(pool), "num_active", property(lambda self: 1))
    clock = map(float, count())

    with caplog.at_level(logging.WARNING):
        same, choice = scheduled_plan(artifact, plan, pool, tmp_path, "again", lambda: next(clock))

    assert choice is None
    assert same == plan
    assert "busy" in caplog.text
    assert not (tmp_path / "schedules").exists()


def test_shapes_tell_one_model_from_another(artifact: Artifact, plan: ProgramPlan) -> None:
    fewer = replace(plan, ops=plan.ops[: len(plan.ops) // 2])

    assert work_parts(plan) == work_parts(replace(plan))
    assert work_parts(plan) != work_parts(fewer)


@pytest.mark.parametrize("value", ["yes", None, 2])
def test_what_autotune_cannot_be_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="autotune"):
        LoadOptions(autotune=value)  # type: ignore[arg-type]
