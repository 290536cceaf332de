"""Why a phase takes its time, in a sentence: what limits it, and which operator takes most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashinfer_lab.profiling.words import say

if TYPE_CHECKING:
    from dashinfer_lab.config import Language
    from dashinfer_lab.profiling.op_profile import PhaseProfile

__all__ = ["limit_sentence"]

_NEAR: Final = 0.5  # of the roof; below it, neither bytes nor operations take most of the time


def limit_sentence(phase: PhaseProfile, lang: Language) -> str:
    """Say what limits `phase`, which has a step; without a measured roof, the costliest alone."""
    costliest, whole = phase.forward_rows()[0], phase.achieved()
    most = say(lang, "most", opname=costliest.opname, share=costliest.percentage / 100)
    reached, roof, work = whole.roof_fraction, phase.roof, whole.work
    if reached is None or roof is None or work is None:
        return most
    steps, step_ms = len(phase.steps), whole.seconds * 1e3 / len(phase.steps)
    if reached < _NEAR:
        bound = say(lang, f"bound.{whole.bound}")
        least_ms = reached * step_ms
        return say(lang, "limit.far", bound=bound, least_ms=least_ms, ms=step_ms, most=most)
    if whole.bound == "memory":
        amount, rate, limit = work.num_bytes / 1e6, whole.gbs, roof.read_bandwidth_gbs
    else:
        amount, rate, limit = work.flops / 1e9, whole.gflops, roof.fma_peak_gflops
    figures = {"amount": amount / steps, "rate": rate, "limit": limit}
    return say(lang, f"limit.{whole.bound}", **figures, most=most)
