from __future__ import annotations

from dataclasses import replace

import pytest

from dashinfer_lab.profiling import OpProfile
from dashinfer_lab.profiling.html import fragment
from dashinfer_lab.profiling.limit import limit_sentence
from jit_kernels.bench import Roof


def _against(batch: OpProfile, bandwidth: float, peak: float) -> OpProfile:
    return batch.with_roof(Roof(bandwidth, bandwidth, peak, 1, "made-up"))


def test_reading_at_the_machines_rate_is_what_sets_the_pace(batch: OpProfile) -> None:
    reached = batch.decode.achieved().gbs
    assert reached is not None
    profile = _against(batch, reached / 0.8, 1e6)
    work = profile.decode.achieved().work
    assert work is not None
    step_bytes = work.num_bytes / len(profile.decode.steps)

    said = limit_sentence(profile.decode, "en")

    assert said.startswith(f"Memory sets the pace: {step_bytes / 1e6:.1f} MB a step")
    assert f"at {reached:.1f} of {reached / 0.8:.1f} GB/s" in said


def test_computing_at_the_machines_rate_is_what_sets_the_pace(batch: OpProfile) -> None:
    reached = batch.prefill.achieved().gflops
    assert reached is not None
    profile = _against(batch, 1e6, reached / 0.8)

    said = limit_sentence(profile.prefill, "en")

    assert said.startswith("Arithmetic sets the pace: ")
    assert f"at {reached:.0f} of {reached / 0.8:.0f} GFLOP/s" in said


def test_far_below_the_roof_the_sentence_says_what_the_roof_would_allow(batch: OpProfile) -> None:
    reached = batch.decode.achieved().gbs
    assert reached is not None
    profile = _against(batch, 4 * reached, 1e6)
    step_ms = 1e3 * profile.decode.wall_seconds / len(profile.decode.steps)

    said = limit_sentence(profile.decode, "en")

    assert f"memory would allow {step_ms / 4:.2f} ms a step, it takes {step_ms:.2f} ms" in said


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_every_report_names_the_costliest_operator(batch: OpProfile, phase: str) -> None:
    without_roof = replace(batch, roof=None)
    row = getattr(batch, phase).forward_rows()[0]
    sentence = f"{row.opname} takes {row.percentage / 100:.0%} of the time."

    assert limit_sentence(getattr(without_roof, phase), "en") == sentence
    assert sentence in batch.report("en")
    assert sentence in fragment(batch, "en")
    assert f"{row.opname} 占" in fragment(batch, "zh")
