"""The schedules a program's linear layers run by: where a choice is kept, and how it is applied.

A choice belongs to the machine, the threads and the shapes of a model's linear layers; models of
equal shapes share one. Measuring is `measure_schedules`'s.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from dashinfer_lab.lower.plan import PlannedOp, ProgramPlan
from dashinfer_lab.lower.plan_cache import cached_plan
from jit_kernels.autotune import Choice, ChoiceStore, machine_parts
from jit_kernels.kernels.linear_schedule import DEFAULT_SCHEDULE

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact
    from jit_kernels.runtime.threads import Pool

__all__ = ["BITS", "Autotune", "kind_of", "scheduled_plan", "with_choice", "work_parts"]

_log = logging.getLogger(__name__)

Autotune = Literal["off", "missing", "again"]
"""Whether schedules are measured: never, where no choice is stored, or in any case."""

BITS: Final = {"linear_f32": 32, "linear_bf16": 16, "linear_u8": 8, "linear_u4": 4}
"""Kernels that have schedules, and the bits of their weights."""


def kind_of(op: PlannedOp) -> str | None:
    """The kind of a linear layer, for which one schedule is chosen; None for other calls."""
    if op.kernel not in BITS:
        return None
    names = ("form", "group", "scale_format")
    return " ".join([op.kernel, *(str(op.constants[n]) for n in names if n in op.constants)])


def work_parts(plan: ProgramPlan) -> tuple[str, ...]:
    """What a choice depends on of a model: the shapes of its linear layers, and their numbers."""
    shapes = Counter(
        f"{kind} {op.operands['in_features']}x{op.operands['num_panels']} {op.rows}"
        for op in plan.ops
        if (kind := kind_of(op)) is not None
    )
    limits = f"{plan.limits.max_tokens} tokens, {plan.limits.max_logit_rows} rows"
    return (limits, *(f"{count} {shape}" for shape, count in sorted(shapes.items())))


def with_choice(plan: ProgramPlan, choice: Choice) -> ProgramPlan:
    """The plan with each linear layer's schedule among its kernel's constants."""

    def scheduled(op: PlannedOp) -> PlannedOp:
        word = choice.schedules.get(kind_of(op) or "", DEFAULT_SCHEDULE)
        if word == DEFAULT_SCHEDULE:
            return op
        return replace(op, constants={**op.constants, "schedule": word})

    return replace(plan, ops=tuple(map(scheduled, plan.ops)))


def scheduled_plan(
    artifact: Artifact,
    plan: ProgramPlan,
    pool: Pool,
    root: Path,
    autotune: Autotune,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[ProgramPlan, Choice | None]:
    """`plan` by the schedules that are stored under the cache's `root`, or measured and stored now.

    The choice is None where none is stored and `autotune` is "off", or the machine is too busy to
    measure: the plan is then as it was.
    """
    isa, limits = pool.compiler.isa, plan.limits
    parts = (*machine_parts(isa, pool.num_threads), *work_parts(plan))
    store = ChoiceStore(root / "schedules")
    choice = None if autotune == "again" else store.read(parts, isa)
    if choice is None and autotune != "off":
        from dashinfer_lab.lower.measure_schedules import measured_choice

        choice = measured_choice(artifact, plan, pool, clock)
        if choice is None:
            _log.warning(
                "other programs kept the processors busy: schedules stay as they are; measure "
                "again when nothing else runs"
            )
        elif not store.write(parts, choice):
            _log.warning("cannot write %s: the schedules are measured again next time", root)
    if choice is None:
        return plan, None
    if choice.row_tile != limits.row_tile:
        limits = replace(limits, row_tile=choice.row_tile)
        plan = cached_plan(artifact, limits, root / "lowered")
    return with_choice(plan, choice), choice
