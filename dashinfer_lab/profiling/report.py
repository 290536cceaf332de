"""A profile as text, in the layout of DashInfer's op profile report.

Sections reshape, alloc and forward; columns rank, opname, count, min_ms, max_ms, ave_ms, total_ms,
percentage. Prefill and decode are apart, and a table by layer follows, which the original lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dashinfer_lab.profiling.op_profile import OpProfile, PhaseProfile, ProfileRow

__all__ = ["report"]

_COLUMNS = ("rank", "opname", "count", "min_ms", "max_ms", "ave_ms", "total_ms", "percentage")
_WIDTHS = (4, 18, 7, 9, 9, 9, 10, 10)


def report(profile: OpProfile) -> str:
    """The whole report, prefill first."""
    lines = [line for phase in profile.phases for line in _phase(phase)]
    return "\n".join(lines) if lines else "no step was profiled"


def _phase(phase: PhaseProfile) -> Iterator[str]:
    rate = phase.num_tokens / phase.wall_seconds
    yield (
        f"=== {phase.phase}: {len(phase.steps)} steps, {phase.num_tokens} tokens, "
        f"{phase.wall_seconds * 1e3:.2f} ms, {rate:.1f} tokens/s, "
        f"{phase.coverage:.1%} accounted for ==="
    )
    yield from _section("reshape", [phase.inputs_row()])
    yield from _section("alloc", [])
    yield from _section("forward", phase.forward_rows())
    yield from _section("layers", phase.by_layer())


def _section(title: str, rows: Sequence[ProfileRow]) -> Iterator[str]:
    yield f"*** {title} ***"
    yield _line(_COLUMNS)
    for rank, row in enumerate(rows):
        times = (row.min_ms, row.max_ms, row.ave_ms, row.total_ms, row.percentage)
        yield _line((str(rank), row.opname, str(row.count), *(f"{time:.2f}" for time in times)))
    yield ""


def _line(cells: Iterable[str]) -> str:
    first, name, *rest = zip(cells, _WIDTHS, strict=True)
    numbers = " ".join(cell.rjust(width) for cell, width in rest)
    return f"{first[0].rjust(first[1])} {name[0].ljust(name[1])} {numbers}"
