"""Recorded steps summed up: by operator and by layer, prefill and decode apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import Language
from dashinfer_lab.profiling.achieved import Achieved, achieved_by, achieved_in_all
from dashinfer_lab.profiling.memory_map import MemoryMap
from dashinfer_lab.profiling.recorder import Machine, PageOwners, ProfileRecorder
from dashinfer_lab.profiling.steps import Phase, StepTimes
from dashinfer_lab.profiling.timeline import RequestTimeline, request_timelines
from dashinfer_lab.profiling.work import WORK, ProfiledOp

if TYPE_CHECKING:
    from dashinfer_lab.profiling.comparison import ProfileComparison
    from dashinfer_lab.profiling.picture import Picture, Theme
    from dashinfer_lab.profiling.plots import PlotKind
    from jit_kernels.bench import Roof

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
    ops: tuple[ProfiledOp, ...]
    steps: tuple[StepTimes, ...]
    roof: Roof | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return sum(step.num_tokens for step in self.steps)

    @property
    def wall_seconds(self) -> float:
        """Time of all steps, from chunks in to results out."""
        return sum(step.wall_seconds for step in self.steps)

    @property
    def tokens_per_second(self) -> float:
        """Tokens computed a second of wall time; 0 without a step."""
        return self.num_tokens / self.wall_seconds if self.steps else 0.0

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
        return self._rows(lambda op: op.kernel)

    def forward_rows(self) -> list[ProfileRow]:
        """Every kernel and what the step adds around them, the costliest first."""
        rows = [*self.by_operator(), self.join_row(), self.results_row()]
        return sorted(rows, key=lambda row: -row.total_ms)

    def by_layer(self) -> list[ProfileRow]:
        """A row for each layer in order, then what lies outside."""
        rows = self._rows(_layer_name)
        return sorted(rows, key=lambda row: _layer_order(row.opname))

    def by_name(self) -> list[ProfileRow]:
        """A row for each operation of the program, the costliest first."""
        return self._rows(lambda op: op.name)

    def achieved_by_operator(self) -> list[Achieved]:
        """GB/s and GFLOP/s of each kernel, the costliest first."""
        return achieved_by(self.ops, self.steps, lambda op: op.kernel, self.roof)

    def achieved_by_layer(self) -> list[Achieved]:
        """GB/s and GFLOP/s of each layer in order, then of what lies outside."""
        found = achieved_by(self.ops, self.steps, _layer_name, self.roof)
        return sorted(found, key=lambda each: _layer_order(each.opname))

    def achieved(self) -> Achieved:
        """The whole phase, over its wall time."""
        return achieved_in_all(self.ops, self.steps, self.phase, self.roof)

    def inputs_row(self) -> ProfileRow:
        """Laying out tokens, page tables and attention's work list."""
        return self._row("step_inputs", np.array([step.input_seconds for step in self.steps]))

    def join_row(self) -> ProfileRow:
        """Waking the workers and waiting for the last of them."""
        return self._row("fork_join", np.array([step.join_seconds for step in self.steps]))

    def results_row(self) -> ProfileRow:
        """Reading tokens and logits back."""
        return self._row("step_results", np.array([step.result_seconds for step in self.steps]))

    def as_dict(self) -> dict[str, Any]:
        """Every table, for JSON."""
        return {
            "steps": len(self.steps),
            "tokens": self.num_tokens,
            "wall_ms": self.wall_seconds * _MS,
            "tokens_per_second": self.tokens_per_second,
            "coverage": self.coverage,
            "reshape": [asdict(self.inputs_row())],
            "alloc": [],
            "forward": [asdict(row) for row in self.forward_rows()],
            "layers": [asdict(row) for row in self.by_layer()],
            "achieved": self.achieved().as_dict(),
            "achieved_by_operator": [each.as_dict() for each in self.achieved_by_operator()],
            "achieved_by_layer": [each.as_dict() for each in self.achieved_by_layer()],
        }

    def _rows(self, key: Callable[[ProfiledOp], str]) -> list[ProfileRow]:
        columns: dict[str, list[int]] = {}
        for position, op in enumerate(self.ops):
            columns.setdefault(key(op), []).append(position)
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


def _layer_name(op: ProfiledOp) -> str:
    return "-" if op.layer is None else str(op.layer)


def _layer_order(name: str) -> tuple[bool, str]:
    return name == "-", name.zfill(6)


@dataclass(frozen=True, eq=False)
class OpProfile:
    """Prefill steps and decode steps of a run; a step with any prompt token counts as prefill.

    roof: what the machine can do, measured beside the run; None where it was not measured.
    num_dropped: earlier steps that were recorded and not kept.
    """

    ops: tuple[ProfiledOp, ...]
    steps: tuple[StepTimes, ...]
    machine: Machine | None = None
    memory: MemoryMap | None = None
    page_owners: PageOwners = ()
    roof: Roof | None = None
    num_dropped: int = 0

    @staticmethod
    def of(recorder: ProfileRecorder, roof: Roof | None = None) -> OpProfile:
        """Sum up what `recorder` saw."""
        return OpProfile(
            recorder.ops,
            tuple(recorder.steps),
            recorder.machine,
            recorder.memory,
            recorder.page_owners,
            roof,
            recorder.num_dropped,
        )

    def with_roof(self, roof: Roof) -> OpProfile:
        """The same run held against `roof`."""
        return replace(self, roof=roof)

    @cached_property
    def prefill(self) -> PhaseProfile:
        """Steps that computed prompt tokens."""
        return self._phase("prefill")

    @cached_property
    def decode(self) -> PhaseProfile:
        """Steps that only decoded."""
        return self._phase("decode")

    @property
    def phases(self) -> Sequence[PhaseProfile]:
        """Those that had a step."""
        return [phase for phase in (self.prefill, self.decode) if phase.steps]

    @property
    def uncounted(self) -> list[str]:
        """Kernels of the program whose bytes and operations are not known."""
        return sorted({op.kernel for op in self.ops if op.kernel not in WORK})

    def requests(self) -> list[RequestTimeline]:
        """Queue, prefill chunks and decoding of each request."""
        return request_timelines(self.steps)

    def compare(self, after: OpProfile, names: tuple[str, str] | None = None) -> ProfileComparison:
        """This run beside another one; `names` are derived from what differs."""
        from dashinfer_lab.profiling.comparison import ProfileComparison

        return ProfileComparison.of(self, after, names)

    def plot(
        self, kind: PlotKind = "overview", lang: Language | None = None, theme: Theme = "light"
    ) -> Picture:
        """A picture: "overview", "roofline", "operators", "timeline", "requests" or "memory".

        Chinese only where a font for it is found. Raises `ConfigError` without matplotlib.
        """
        from dashinfer_lab.profiling.plots import plot

        return plot(self, kind, lang, theme)

    def trace(self) -> dict[str, Any]:
        """A Chrome trace, which Perfetto opens: steps, layers, operations, requests."""
        from dashinfer_lab.profiling.trace import chrome_trace

        return chrome_trace(self)

    def report(self, lang: Language | None = None) -> str:
        """The tables as text, in the locale's language unless `lang` says otherwise."""
        from dashinfer_lab.profiling.report import report

        return report(self, lang)

    def save(self, path: str | Path, lang: Language | None = None) -> Path:
        """Write .json, .trace.json (Chrome trace), .html, .png or .txt. Raises `ConfigError`."""
        from dashinfer_lab.profiling.saving import save

        return save(self, path, lang)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON; the phases that had a step by their names."""
        roof, machine = self.roof, self.machine
        return {
            **{phase.phase: phase.as_dict() for phase in self.phases},
            "machine": None if machine is None else asdict(machine),
            "roof": None if roof is None else asdict(roof),
            "requests": [each.as_dict() for each in self.requests()],
            "memory": None if self.memory is None else self.memory.as_dict(),
            "dropped_steps": self.num_dropped,
        }

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        from dashinfer_lab.profiling.html import fragment

        return fragment(self)

    def _repr_png_(self) -> bytes | None:
        from dashinfer_lab.profiling.picture import can_draw

        return self.plot().png if can_draw() and self.steps else None

    def _phase(self, name: Phase) -> PhaseProfile:
        chosen = tuple(step for step in self.steps if step.phase == name)
        return PhaseProfile(name, self.ops, chosen, self.roof)
