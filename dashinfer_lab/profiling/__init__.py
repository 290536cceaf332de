"""Where a step's time went, as data and as text; knows no engine and no kernel."""

from __future__ import annotations

from dashinfer_lab.profiling.op_profile import OpProfile, PhaseProfile, ProfileRow
from dashinfer_lab.profiling.recorder import OpLabel, Phase, ProfileRecorder
from dashinfer_lab.profiling.report import report

__all__ = [
    "OpLabel",
    "OpProfile",
    "Phase",
    "PhaseProfile",
    "ProfileRecorder",
    "ProfileRow",
    "report",
]
