"""What operations reached against what the machine can do: GB/s, GFLOP/s, share of the roof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dashinfer_lab.profiling.steps import StepTimes
from dashinfer_lab.profiling.work import ProfiledOp, Work, work_of

if TYPE_CHECKING:
    from jit_kernels.bench import Roof

__all__ = ["Achieved", "Bound", "achieved_by", "achieved_in_all"]

Bound = Literal["memory", "compute"]
_GIGA = 1e9
_SHORTEST_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Achieved:
    """Work and time of some calls, against `roof`, None where none was measured.

    work: None where a kernel among them has no formula, see `WORK`. Rates are None, too, where the
    time is so short that the worker that keeps it left the work to others.
    """

    opname: str
    seconds: float
    work: Work | None
    roof: Roof | None = None

    @property
    def gbs(self) -> float | None:
        """10**9 bytes a second."""
        return None if self.work is None else self._rate(self.work.num_bytes)

    @property
    def gflops(self) -> float | None:
        """10**9 operations a second."""
        return None if self.work is None else self._rate(self.work.flops)

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return None if self.work is None else self.work.intensity

    @property
    def bound(self) -> Bound | None:
        """What limits such work at best: reading bytes, or multiply-adds."""
        limits = self._least_seconds()
        return None if limits is None else ("memory" if limits[0] >= limits[1] else "compute")

    @property
    def roof_fraction(self) -> float | None:
        """The least time the machine would need over the time it took.

        Above 1 where the bytes lay in a cache, or the products were of integers.
        """
        limits = self._least_seconds()
        if limits is None or self.seconds < _SHORTEST_SECONDS:
            return None
        return max(limits) / self.seconds

    def _rate(self, amount: float) -> float | None:
        return amount / self.seconds / _GIGA if self.seconds >= _SHORTEST_SECONDS else None

    def _least_seconds(self) -> tuple[float, float] | None:
        if self.work is None or self.roof is None:
            return None
        reading = self.work.num_bytes / (self.roof.read_bandwidth_gbs * _GIGA)
        return reading, self.work.flops / (self.roof.fma_peak_gflops * _GIGA)

    def as_dict(self) -> dict[str, Any]:
        """Names and values, for JSON; None where not known."""
        work = self.work
        return {
            "opname": self.opname,
            "total_ms": self.seconds * 1e3,
            "weight_bytes": None if work is None else work.weight_bytes,
            "kv_bytes": None if work is None else work.kv_bytes,
            "activation_bytes": None if work is None else work.activation_bytes,
            "flops": None if work is None else work.flops,
            "gbs": self.gbs,
            "gflops": self.gflops,
            "intensity": self.intensity,
            "bound": self.bound,
            "roof_fraction": self.roof_fraction,
        }


def achieved_by(
    ops: Sequence[ProfiledOp],
    steps: Sequence[StepTimes],
    key: Callable[[ProfiledOp], str],
    roof: Roof | None,
) -> list[Achieved]:
    """One entry for each key, the costliest first."""
    groups: dict[str, list[int]] = {}
    for position, op in enumerate(ops):
        groups.setdefault(key(op), []).append(position)
    totals = _total_work(ops, steps)
    found = [
        Achieved(
            name,
            sum(float(step.op_seconds[chosen].sum()) for step in steps),
            _sum([totals[position] for position in chosen]),
            roof,
        )
        for name, chosen in groups.items()
    ]
    return sorted(found, key=lambda each: -each.seconds)


def achieved_in_all(
    ops: Sequence[ProfiledOp], steps: Sequence[StepTimes], name: str, roof: Roof | None
) -> Achieved:
    """All operations over the wall time of their steps."""
    seconds = sum(step.wall_seconds for step in steps)
    return Achieved(name, seconds, _sum(_total_work(ops, steps)), roof)


def _total_work(ops: Sequence[ProfiledOp], steps: Sequence[StepTimes]) -> list[Work | None]:
    """Work of each operation over all steps; layers alike are computed once."""
    known: dict[object, Work | None] = {}
    totals: list[Work | None] = []
    for op in ops:
        key = op.work_key()
        if key not in known:
            known[key] = _sum([work_of(op, step.shape) for step in steps])
        totals.append(known[key])
    return totals


def _sum(parts: Sequence[Work | None]) -> Work | None:
    total = Work()
    for part in parts:
        if part is None:
            return None
        total += part
    return total
