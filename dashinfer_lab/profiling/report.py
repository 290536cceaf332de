"""A profile as text, in the layout of DashInfer's op profile report, and then against the roof.

Sections reshape, alloc and forward; columns rank, opname, count, min_ms, max_ms, ave_ms, total_ms,
percentage. Prefill and decode are apart; tables by layer and against the machine's roof follow,
which the original lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dashinfer_lab.config import Language
from dashinfer_lab.profiling.achieved import Achieved
from dashinfer_lab.profiling.limit import limit_sentence
from dashinfer_lab.profiling.op_profile import OpProfile, PhaseProfile, ProfileRow
from dashinfer_lab.profiling.recorder import Machine
from dashinfer_lab.profiling.words import say, spoken

__all__ = ["machine_text", "notes", "report", "roof_sentence"]

_COLUMNS = ("rank", "opname", "count", "min_ms", "max_ms", "ave_ms", "total_ms", "percentage")
_WIDTHS = (4, 18, 7, 9, 9, 9, 10, 10)
_ROOF_COLUMNS = (
    "opname",
    "total_ms",
    "MB",
    "GB/s",
    "GFLOP",
    "GFLOP/s",
    "flop/B",
    "roof_%",
    "bound",
)
_ROOF_WIDTHS = (18, 10, 9, 8, 9, 9, 8, 7, 8)


def report(profile: OpProfile, lang: Language | None = None) -> str:
    """The whole report, prefill first."""
    language = spoken(lang)
    if not profile.steps:
        return say(language, "nothing")
    lines = [line for phase in profile.phases for line in _phase(phase, language)]
    limits = [
        f"{say(language, phase.phase)}: {limit_sentence(phase, language)}"
        for phase in profile.phases
    ]
    return "\n".join([*lines, *limits, *notes(profile, language)])


def notes(profile: OpProfile, lang: Language) -> Iterator[str]:
    """What ran where, the roof, and what the figures leave out."""
    if profile.machine is not None:
        yield machine_text(profile.machine, lang)
    yield roof_sentence(profile, lang)
    yield say(lang, "convention")
    if profile.uncounted:
        yield say(lang, "uncounted", kernels=", ".join(profile.uncounted))
    if profile.num_dropped:
        yield say(lang, "dropped", count=profile.num_dropped)


def machine_text(machine: Machine, lang: Language) -> str:
    """What ran where, on one line."""
    threads = say(lang, "one_thread" if machine.threads == 1 else "threads", count=machine.threads)
    return say(
        lang,
        "machine",
        model=machine.model,
        scheme=machine.scheme,
        isa=machine.isa,
        threads=threads,
    )


def roof_sentence(profile: OpProfile, lang: Language) -> str:
    """The machine's limits, or that they are not known."""
    roof = profile.roof
    if roof is None:
        return say(lang, "no_roof")
    return say(
        lang,
        "roof",
        bandwidth=roof.read_bandwidth_gbs,
        peak=roof.fma_peak_gflops,
        threads=roof.threads,
        isa=roof.isa,
    )


def _phase(phase: PhaseProfile, lang: Language) -> Iterator[str]:
    sentence = say(
        lang,
        "phase" if len(phase.steps) != 1 else "phase_of_one_step",
        phase=phase.phase,
        steps=len(phase.steps),
        tokens=phase.num_tokens,
        ms=phase.wall_seconds * 1e3,
        rate=phase.tokens_per_second,
        coverage=phase.coverage,
    )
    yield f"=== {sentence} ==="
    yield from _section("reshape", [phase.inputs_row()])
    yield from _section("alloc", [])
    yield from _section("forward", phase.forward_rows())
    yield from _section("layers", phase.by_layer())
    yield from _roof_section("roof", [*phase.achieved_by_operator(), phase.achieved()])
    yield from _roof_section("roof, layers", phase.achieved_by_layer())


def _section(title: str, rows: Sequence[ProfileRow]) -> Iterator[str]:
    yield f"*** {title} ***"
    yield _line(_COLUMNS, _WIDTHS, left=1)
    for rank, row in enumerate(rows):
        times = (row.min_ms, row.max_ms, row.ave_ms, row.total_ms, row.percentage)
        cells = (str(rank), row.opname, str(row.count), *(f"{time:.2f}" for time in times))
        yield _line(cells, _WIDTHS, left=1)
    yield ""


def _roof_section(title: str, rows: Sequence[Achieved]) -> Iterator[str]:
    yield f"*** {title} ***"
    yield _line(_ROOF_COLUMNS, _ROOF_WIDTHS, left=0)
    for row in rows:
        work, fraction = row.work, row.roof_fraction
        cells = (
            row.opname,
            f"{row.seconds * 1e3:.2f}",
            "-" if work is None else f"{work.num_bytes / 1e6:.2f}",
            _figure(row.gbs),
            "-" if work is None else f"{work.flops / 1e9:.3f}",
            _figure(row.gflops),
            _figure(row.intensity),
            _figure(None if fraction is None else 100 * fraction),
            row.bound or "-",
        )
        yield _line(cells, _ROOF_WIDTHS, left=0)
    yield ""


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _line(cells: Iterable[str], widths: Sequence[int], left: int) -> str:
    """Cells in columns; the one at `left` is a name, the others are figures."""
    padded = [
        cell.ljust(width) if column == left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return " ".join(padded).rstrip()
