"""Where a step's time went: as data, text, HTML and pictures; knows no engine and no kernel."""

from __future__ import annotations

from dashinfer_lab.profiling.achieved import Achieved
from dashinfer_lab.profiling.capture import Capture
from dashinfer_lab.profiling.comparison import ProfileComparison
from dashinfer_lab.profiling.memory_map import ArenaBuffer, MemoryMap, WeightTensor
from dashinfer_lab.profiling.op_profile import OpProfile, PhaseProfile, ProfileRow
from dashinfer_lab.profiling.recorder import Machine, ProfileRecorder
from dashinfer_lab.profiling.saving import require_savable, save_trace
from dashinfer_lab.profiling.steps import ChunkSpan, Phase, StepShape, StepTimes
from dashinfer_lab.profiling.timeline import RequestTimeline, Stretch
from dashinfer_lab.profiling.work import WORK, ProfiledOp, Work

__all__ = [
    "WORK",
    "Achieved",
    "ArenaBuffer",
    "Capture",
    "ChunkSpan",
    "Machine",
    "MemoryMap",
    "OpProfile",
    "Phase",
    "PhaseProfile",
    "ProfileComparison",
    "ProfileRecorder",
    "ProfileRow",
    "ProfiledOp",
    "RequestTimeline",
    "StepShape",
    "StepTimes",
    "Stretch",
    "WeightTensor",
    "Work",
    "require_savable",
    "save_trace",
]
