"""Measures the schedules of a model's linear layers on its own weights, for a few seconds.

The model's shapes run as programs of linear layers alone, one program for each trial, in turns.
Their inputs are zeros: what a product takes does not depend on its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.lower.calls import LOGITS
from dashinfer_lab.lower.instantiate import Memory, bound_operations
from dashinfer_lab.lower.plan import PlannedOp, ProgramPlan
from dashinfer_lab.lower.schedules import BITS, kind_of
from jit_kernels.activation_layout import GEMV_ROWS, REDUNDANT_ROWS
from jit_kernels.autotune import Choice, gain, in_turns, winner
from jit_kernels.kernels.linear_schedule import DEFAULT_SCHEDULE, Schedule, Trial, trials
from jit_kernels.panels import PANEL_WIDTH
from jit_kernels.runtime.buffers import aligned
from jit_kernels.runtime.program import Program

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact
    from jit_kernels.runtime.threads import Pool

__all__ = ["measured_choice"]

_SECONDS_A_COUNT: Final = 1.0
_LEAST_GAIN: Final = 0.97
"""A choice that is slower than this at any number of rows is given up."""
_ROW_TILES_MULTIPLE: Final = 24  # whole strips of 8, 6, 4, 3 and 2 rows

Times = dict[str, NDArray[np.float64]]


class _Regime(NamedTuple):
    """Numbers of rows that one form of the kernel serves, and the fields it reads.

    most_bytes: of weights in a run.  most_weights: in one layer of it.
    """

    counts: tuple[int, ...]
    fields: tuple[str, ...]
    most_bytes: int
    most_weights: int


def measured_choice(
    artifact: Artifact, plan: ProgramPlan, pool: Pool, clock: Callable[[], float]
) -> Choice | None:
    """The quickest schedule of each kind of linear layer; the default where none wins clearly.

    None where other programs kept the processors busy: times then say nothing.
    """
    bench = _Bench(artifact, plan, pool, clock)
    candidates = trials(pool.compiler.isa)
    found = {regime: bench.times(regime, candidates, {}) for regime in _regimes(plan)}
    kinds = list(dict.fromkeys(kind for kind in map(kind_of, plan.ops) if kind is not None))
    chosen = {kind: _composed(kind, found, candidates) for kind in kinds}
    tile = _row_tile(found, candidates)
    choice = _verified(bench, list(found), chosen, candidates[0], tile)
    return None if bench.was_busy else choice


def _regimes(plan: ProgramPlan) -> Iterator[_Regime]:
    limits = plan.limits
    yield _Regime((1,), ("unroll", "shared_from"), 128 << 20, 64 << 20)
    if limits.max_tokens >= REDUNDANT_ROWS:
        yield _Regime((REDUNDANT_ROWS,), ("few_ahead",), 128 << 20, 64 << 20)
    several = tuple(rows for rows in (8, 32) if rows <= limits.max_tokens)
    if several:
        yield _Regime(several, ("pass_rows", "many_ahead"), 64 << 20, 32 << 20)
    many = min(limits.max_tokens, 240) // _ROW_TILES_MULTIPLE * _ROW_TILES_MULTIPLE
    if many > GEMV_ROWS:
        yield _Regime((many,), ("row_block", "block_steps"), 16 << 20, 4 << 20)


def _composed(
    kind: str, found: Mapping[_Regime, Mapping[int, Times]], candidates: Sequence[Trial]
) -> Schedule:
    """Each field as the trial had it that won the regime which reads it."""
    default = candidates[0].schedule
    chosen = default
    for regime, counts in found.items():
        times = [count[kind] for count in counts.values() if kind in count]
        if times:
            best = candidates[winner(np.concatenate(times))].schedule
            chosen = replace(chosen, **{name: getattr(best, name) for name in regime.fields})
    return chosen


def _row_tile(found: Mapping[_Regime, Mapping[int, Times]], candidates: Sequence[Trial]) -> int:
    """Strips are the same for all kinds: their times count together."""
    many = next((found[regime] for regime in found if "row_block" in regime.fields), None)
    default = candidates[0]
    if many is None:
        return default.row_tile
    (times,) = many.values()
    total = np.sum(list(times.values()), axis=0)
    tried = [i for i, it in enumerate(candidates) if i == 0 or it.row_tile != default.row_tile]
    return candidates[tried[winner(total[:, tried])]].row_tile


def _verified(
    bench: _Bench,
    regimes: Sequence[_Regime],
    chosen: Mapping[str, Schedule],
    default: Trial,
    tile: int,
) -> Choice:
    """What was put together, run beside the default once more: kinds that lose keep the default."""
    together = Trial(default.schedule, tile)
    if tile == default.row_tile and all(it == default.schedule for it in chosen.values()):
        return Choice(tile, dict.fromkeys(chosen, DEFAULT_SCHEDULE), {})
    gains: dict[str, float] = {}
    for regime in regimes:
        for count, times in bench.times(regime, [default, together], chosen).items():
            gains |= {f"{kind}, {count} rows": gain(both, 1) for kind, both in times.items()}
    if any(value < _LEAST_GAIN for value in gains.values()) and tile != default.row_tile:
        return _verified(bench, regimes, chosen, default, default.row_tile)
    words: dict[str, str] = {}
    for kind, schedule in chosen.items():
        own = [value for name, value in gains.items() if name.startswith(f"{kind}, ")]
        kept = schedule != default.schedule and min(own, default=1.0) >= _LEAST_GAIN
        words[kind] = schedule.word if kept else DEFAULT_SCHEDULE
    told = {
        name: round(value, 3)
        for name, value in gains.items()
        if tile != default.row_tile or words[name.rpartition(", ")[0]] != DEFAULT_SCHEDULE
    }
    return Choice(tile, words, told)


class _Bench:
    """A model's linear layers in a memory of their own, timed kind by kind."""

    def __init__(
        self, artifact: Artifact, plan: ProgramPlan, pool: Pool, clock: Callable[[], float]
    ) -> None:
        limits = plan.limits
        self._plan, self._pool, self._clock = plan, pool, clock
        self.was_busy = False
        self._counts = {name: aligned(1, np.int64) for name in ("num_tokens", "num_logit_rows")}
        logits = aligned((limits.max_logit_rows, plan.logits_stride), np.float32)
        step = {**self._counts, LOGITS: logits}
        self._memory = Memory(plan, artifact, step, aligned(1, np.uint8))

    def times(
        self,
        regime: _Regime,
        candidates: Sequence[Trial],
        chosen: Mapping[str, Schedule],
    ) -> dict[int, Times]:
        """Seconds [rounds, candidates] of each kind, for each number of rows.

        chosen: the schedules of all candidates but the first, where they are not the trials' own.
        """
        ops = _sample(self._plan, regime)
        programs = [
            self._program(ops, trial, chosen if number else {})
            for number, trial in enumerate(candidates)
        ]
        found: dict[int, Times] = {}
        for count in regime.counts:
            self._counts["num_tokens"][0] = count
            self._counts["num_logit_rows"][0] = min(count, self._plan.limits.max_logit_rows)
            runs = [partial(_seconds, ops, program) for program in programs]
            found[count] = in_turns(runs, _SECONDS_A_COUNT, self._clock)
            self.was_busy |= self._pool.num_active < self._pool.num_threads
        return found

    def _program(
        self, ops: Sequence[PlannedOp], trial: Trial, chosen: Mapping[str, Schedule]
    ) -> Program:
        words = [chosen.get(kind_of(op) or "", trial.schedule).word for op in ops]
        scheduled = [
            replace(op, constants={**op.constants, "schedule": word, "row_tile": trial.row_tile})
            for op, word in zip(ops, words, strict=True)
        ]
        plan = replace(self._plan, ops=tuple(scheduled))
        return Program(self._pool, bound_operations(plan, self._memory, self._pool))


def _seconds(ops: Sequence[PlannedOp], program: Program) -> dict[str, float]:
    taken: dict[str, float] = {}
    for op, seconds in zip(ops, program.profile().seconds, strict=True):
        kind = kind_of(op) or ""
        taken[kind] = taken.get(kind, 0.0) + float(seconds)
    return taken


def _sample(plan: ProgramPlan, regime: _Regime) -> list[PlannedOp]:
    """Layers enough to fill the regime's bytes, the head first; without biases and residuals.

    What is added at the end takes no time to speak of, and its kernels would have to be compiled.
    """
    linear = [op for op in plan.ops if op.kernel in BITS]
    if max(regime.counts) > GEMV_ROWS:
        linear = [op for op in linear if op.rows == "num_tokens"]
    linear.sort(key=lambda op: op.layer is not None)
    sample: list[PlannedOp] = []
    num_bytes = 0
    for op in linear:
        if num_bytes >= regime.most_bytes and kind_of(op) in map(kind_of, sample):
            continue
        in_features, panels = (op.operands[name] for name in ("in_features", "num_panels"))
        assert isinstance(in_features, int)
        assert isinstance(panels, int)
        most = max(1, regime.most_weights // (in_features * PANEL_WIDTH))
        panels = _whole_units(op, min(panels, most))
        num_bytes += in_features * panels * PANEL_WIDTH * BITS[op.kernel] // 8
        sample.append(
            replace(
                op,
                constants={**op.constants, "has_bias": False, "has_residual": False},
                operands={**op.operands, "num_panels": panels},
            )
        )
    return sample


def _whole_units(op: PlannedOp, panels: int) -> int:
    """As many panels, rounded down, as gates and ups that are taken together leave none over."""
    together = 2 * int(op.constants.get("unit_group", 0)) // PANEL_WIDTH
    return max(panels // together, 1) * together if together else panels
