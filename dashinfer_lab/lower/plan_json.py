"""A `ProgramPlan` as JSON and back; whatever does not read back whole is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from dashinfer_lab.lower.plan import (
    AnglesOperand,
    ArenaOperand,
    Buffer,
    CacheOperand,
    CounterOperand,
    NothingOperand,
    Operand,
    PlanLimits,
    PlannedOp,
    ProgramPlan,
    RotaryOperand,
    StepOperand,
    TensorOperand,
    WorkspaceOperand,
)

__all__ = ["plan_from_json", "plan_to_json"]

_TAGS: dict[type[Any], str] = {
    TensorOperand: "tensor",
    RotaryOperand: "rotary",
    AnglesOperand: "angles",
    ArenaOperand: "arena",
    StepOperand: "step",
    CacheOperand: "cache",
    CounterOperand: "counter",
    WorkspaceOperand: "workspace",
    NothingOperand: "nothing",
}
_CLASSES = {tag: cls for cls, tag in _TAGS.items()}


def plan_to_json(plan: ProgramPlan) -> str:
    """The plan as one line of JSON."""
    ops = [_op_to_json(op) for op in plan.ops]
    buffers = [asdict(buffer) for buffer in plan.buffers.values()]
    sizes = {f.name: getattr(plan, f.name) for f in fields(plan) if f.type == "int"}
    whole = {"limits": asdict(plan.limits), "buffers": buffers, "ops": ops, **sizes}
    return json.dumps(whole, separators=(",", ":"))


def plan_from_json(text: str) -> ProgramPlan:
    """The plan that `plan_to_json` wrote; raises `ValueError` for any other text."""
    try:
        whole: dict[str, Any] = json.loads(text)
        limits = PlanLimits(**whole.pop("limits"))
        buffers = [Buffer(**buffer) for buffer in whole.pop("buffers")]
        ops = tuple(_op_from_json(op) for op in whole.pop("ops"))
        by_name = {buffer.name: buffer for buffer in buffers}
        return ProgramPlan(ops=ops, buffers=by_name, limits=limits, **whole)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a lowered program: {error!r}") from error


def _op_to_json(op: PlannedOp) -> dict[str, Any]:
    operands = {name: _operand_to_json(operand) for name, operand in op.operands.items()}
    return {f.name: getattr(op, f.name) for f in fields(op)} | {"operands": operands}


def _op_from_json(values: dict[str, Any]) -> PlannedOp:
    operands = {name: _operand_from_json(o) for name, o in values.pop("operands").items()}
    reads, writes = tuple(values.pop("reads")), tuple(values.pop("writes"))
    return PlannedOp(operands=operands, reads=reads, writes=writes, **values)


def _operand_to_json(operand: Operand) -> Any:
    if isinstance(operand, int | float):
        return operand
    return [_TAGS[type(operand)], *(getattr(operand, f.name) for f in fields(operand))]


def _operand_from_json(value: Any) -> Operand:
    if isinstance(value, int | float):
        return value
    tag, *arguments = value
    whole = [tuple(a) if isinstance(a, list) else a for a in arguments]
    return _CLASSES[tag](*whole)
