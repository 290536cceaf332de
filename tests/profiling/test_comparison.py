from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling import Machine, OpProfile, StepTimes
from dashinfer_lab.profiling.comparison import ComparedPhase, ComparedRow, ProfileComparison
from dashinfer_lab.profiling.html import comparison_fragment

ONE = Machine("m", "fp32", "avx2", 1)


def slower(step: StepTimes, factor: float) -> StepTimes:
    return replace(
        step,
        op_seconds=np.array(step.op_seconds * factor),
        input_seconds=step.input_seconds * factor,
        compute_seconds=step.compute_seconds * factor,
        result_seconds=step.result_seconds * factor,
        wall_seconds=step.wall_seconds * factor,
    )


@pytest.fixture(scope="module")
def slow(batch: OpProfile) -> OpProfile:
    """The same run at half the speed."""
    return replace(batch, steps=tuple(slower(step, 2) for step in batch.steps))


def test_a_run_twice_as_fast_has_a_speed_up_of_two(batch: OpProfile, slow: OpProfile) -> None:
    found = slow.compare(batch)

    assert found.names == ("before", "after")
    for phase in found.phases:
        assert phase.total.speedup == pytest.approx(2)
        speedups = [row.speedup for row in phase.rows if row.speedup is not None]
        assert speedups == pytest.approx([2] * len(speedups))


def test_rows_add_up_to_the_total(batch: OpProfile, slow: OpProfile) -> None:
    for phase in slow.compare(batch).phases:
        assert sum(row.before_ms for row in phase.rows[:-1]) == pytest.approx(
            phase.total.before_ms, rel=0.05
        )


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"scheme": "a16w8:64"}, ("fp32", "a16w8:64")),
        ({"threads": 2}, ("1 thread", "2 threads")),
        ({"model": "n", "threads": 4}, ("m, 1 thread", "n, 4 threads")),
    ],
)
def test_runs_are_named_by_what_differs(
    batch: OpProfile, change: dict[str, object], names: tuple[str, str]
) -> None:
    before = replace(batch, machine=ONE)
    after = replace(batch, machine=replace(ONE, **change))  # type: ignore[arg-type]

    assert before.compare(after).names == names
    assert before.compare(after, ("a", "b")).names == ("a", "b")


def test_the_text_has_both_runs(batch: OpProfile, slow: OpProfile) -> None:
    lines = slow.compare(batch).report("en").splitlines()

    assert lines[0] == "=== prefill: milliseconds a token ==="
    assert lines[1].split() == ["opname", "before", "after", "x"]
    assert any(line.split()[0] == "total" and line.endswith("2.00") for line in lines if line)


def _with_kernels(profile: OpProfile, before: str, after: str) -> OpProfile:
    renamed = (replace(op, kernel=op.kernel.replace(before, after)) for op in profile.ops)
    return replace(profile, ops=tuple(renamed))


def test_products_in_other_formats_are_one_row_with_a_speed_up(
    batch: OpProfile, slow: OpProfile
) -> None:
    found = slow.compare(_with_kernels(batch, "linear_u8", "linear_f32"))
    rows = {row.opname: row for row in found.phases[0].rows}
    (alone,) = (row for row in slow.compare(batch).phases[0].rows if row.opname == "linear_u8")

    assert rows["linear"] == replace(alone, opname="linear")
    assert rows["linear"].speedup == pytest.approx(2)
    assert not {"linear_u8", "linear_f32"} & set(rows)


def test_an_operator_of_one_run_alone_has_no_speed_up(batch: OpProfile) -> None:
    found = batch.compare(_with_kernels(batch, "attention_merge", "merge"))
    rows = {row.opname: row for row in found.phases[0].rows}

    assert (rows["attention_merge"].after_ms, rows["attention_merge"].speedup) == (0.0, None)
    assert (rows["merge"].before_ms, rows["merge"].speedup) == (0.0, None)
    assert json.loads(json.dumps(found.as_dict()))["names"] == ["before", "after"]
    lines = [line.split() for line in found.report("en").splitlines()]
    assert {line[1] for line in lines if line and line[0] == "merge"} == {"-"}


def test_a_ratio_of_times_too_short_to_tell_is_not_shown() -> None:
    rows = (
        ComparedRow("linear", 9.0, 6.0),
        ComparedRow("advance", 0.0189, 0.00001),
        ComparedRow("total", 9.1, 6.1),
    )
    phase = ComparedPhase("decode", rows)
    found = ProfileComparison(("a", "b"), (phase,))

    assert [phase.telling_speedup(row) for row in rows] == [1.5, None, rows[2].speedup]
    assert "1.50×" in comparison_fragment(found, "en")
    assert "1890.00" not in found.report("en") + comparison_fragment(found, "en")


def test_runs_without_a_common_phase_are_refused(batch: OpProfile) -> None:
    prefill = replace(batch, steps=batch.prefill.steps)
    decode = replace(batch, steps=batch.decode.steps)

    with pytest.raises(ConfigError, match="no phase in common"):
        prefill.compare(decode)


def test_a_comparison_is_drawn(batch: OpProfile, slow: OpProfile) -> None:
    pytest.importorskip("matplotlib")
    found = slow.compare(batch)

    assert found.plot("zh", "dark").png.startswith(b"\x89PNG")
    assert found._repr_png_() is not None
