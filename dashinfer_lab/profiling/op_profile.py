"""Recorded steps summed up: by operator and by layer, prefill and decode apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.profiling.recorder import OpLabel, Phase, ProfileRecorder, StepTimes

__all__ = ["OpProfile", "PhaseProfile", "ProfileRow"]

_MS = 1e3


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One line of a profile; times in milliseconds of a call, `percentage` of the wall time."""

    opname: str
    count: int
    min_ms: float
    max_ms: float
    ave_ms: float
    total_ms: float
    percentage: float


@dataclass(frozen=True, slots=True, eq=False)
class PhaseProfile:
    """All steps of one phase; times are worker 0's, its waits at barriers included."""

    phase: Phase
    labels: tuple[OpLabel, ...]
    steps: tuple[StepTimes, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return sum(step.num_tokens for step in self.steps)

    @property
    def wall_seconds(self) -> float:
        """Time of all steps, from chunks in to results out."""
        return sum(step.wall_seconds for step in self.steps)

    @property
    def coverage(self) -> float:
        """Share of the wall time that the rows explain."""
        explained = sum(
            step.input_seconds
            + float(step.op_seconds.sum())
            + step.join_seconds
            + step.result_seconds
            for step in self.steps
        )
        return explained / self.wall_seconds if self.steps else 1.0

    def by_operator(self) -> list[ProfileRow]:
        """A row for each kernel, the costliest first."""
        return self._rows(lambda label: label.kernel)

    def forward_rows(self) -> list[ProfileRow]:
        """Every kernel and what the step adds around them, the costliest first."""
        rows = [*self.by_operator(), self.join_row(), self.results_row()]
        return sorted(rows, key=lambda row: -row.total_ms)

    def by_layer(self) -> list[ProfileRow]:
        """A row for each layer in order, then what lies outside."""
        rows = self._rows(lambda label: "-" if label.layer is None else str(label.layer))
        return sorted(rows, key=lambda row: (row.opname == "-", row.opname.zfill(6)))

    def by_name(self) -> list[ProfileRow]:
        """A row for each operation of the program, the costliest first."""
        return self._rows(lambda label: label.name)

    def inputs_row(self) -> ProfileRow:
        """Laying out tokens, page tables and attention's work list."""
        return self._row("step_inputs", np.array([step.input_seconds for step in self.steps]))

    def join_row(self) -> ProfileRow:
        """Waking the workers and waiting for the last of them."""
        return self._row("fork_join", np.array([step.join_seconds for step in self.steps]))

    def results_row(self) -> ProfileRow:
        """Reading tokens and logits back."""
        return self._row("step_results", np.array([step.result_seconds for step in self.steps]))

    def _rows(self, key: Callable[[OpLabel], str]) -> list[ProfileRow]:
        columns: dict[str, list[int]] = {}
        for position, label in enumerate(self.labels):
            columns.setdefault(key(label), []).append(position)
        if not self.steps:
            return []
        seconds = np.stack([step.op_seconds for step in self.steps])
        rows = [self._row(name, seconds[:, chosen]) for name, chosen in columns.items()]
        return sorted(rows, key=lambda row: -row.total_ms)

    def _row(self, name: str, seconds: NDArray[np.float64]) -> ProfileRow:
        if not seconds.size:
            return ProfileRow(name, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
        total = float(seconds.sum())
        share = 100 * total / self.wall_seconds
        low, high, mean = (float(f(seconds)) * _MS for f in (np.min, np.max, np.mean))
        return ProfileRow(name, seconds.size, low, high, mean, total * _MS, share)


@dataclass(frozen=True, slots=True, eq=False)
class OpProfile:
    """Prefill steps and decode steps of a run; a step with any prompt token counts as prefill."""

    prefill: PhaseProfile
    decode: PhaseProfile

    @staticmethod
    def of(recorder: ProfileRecorder) -> OpProfile:
        """Sum up what `recorder` saw."""

        def phase(name: Phase) -> PhaseProfile:
            chosen = tuple(step for step in recorder.steps if step.phase == name)
            return PhaseProfile(name, recorder.labels, chosen)

        return OpProfile(phase("prefill"), phase("decode"))

    @property
    def phases(self) -> Sequence[PhaseProfile]:
        """Those that had a step."""
        return [phase for phase in (self.prefill, self.decode) if phase.steps]

    def as_dict(self) -> dict[str, Any]:
        """Every table, for JSON."""
        return {
            phase.phase: {
                "steps": len(phase.steps),
                "tokens": phase.num_tokens,
                "wall_ms": phase.wall_seconds * _MS,
                "coverage": phase.coverage,
                "reshape": [asdict(phase.inputs_row())],
                "alloc": [],
                "forward": [asdict(row) for row in phase.forward_rows()],
                "layers": [asdict(row) for row in phase.by_layer()],
            }
            for phase in self.phases
        }

    def __str__(self) -> str:
        from dashinfer_lab.profiling.report import report

        return report(self)
