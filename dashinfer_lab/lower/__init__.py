"""From a converted model's ONNX graph to a program of compiled kernels."""

from __future__ import annotations

from dashinfer_lab.lower.instantiate import Memory, instantiate
from dashinfer_lab.lower.lowering import lower, lowered_ops
from dashinfer_lab.lower.plan import PlanLimits, PlannedOp, ProgramPlan
from dashinfer_lab.lower.plan_cache import cached_plan

__all__ = [
    "Memory",
    "PlanLimits",
    "PlannedOp",
    "ProgramPlan",
    "cached_plan",
    "instantiate",
    "lower",
    "lowered_ops",
]
