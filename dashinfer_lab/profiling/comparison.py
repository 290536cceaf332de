"""Two runs side by side: before and after, two schemes, two thread counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling.words import say, spoken

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile, PhaseProfile
    from dashinfer_lab.profiling.picture import Pen, Picture, Theme
    from dashinfer_lab.profiling.steps import Phase

__all__ = ["ComparedPhase", "ComparedRow", "ProfileComparison"]

_OPERATOR_WIDTH = 18
_MOST_BARS = 9
_TELLING_SHARE = 0.01  # ratios of smaller times are noise
_FORMAT = re.compile(r"_(f32|bf16|u8|u4)$")


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """Milliseconds a token that an operator took in both runs; 0 where a run had none of it."""

    opname: str
    before_ms: float
    after_ms: float

    @property
    def speedup(self) -> float | None:
        """How many times faster the second run was; None where one had none of it."""
        return self.before_ms / self.after_ms if self.before_ms and self.after_ms else None


@dataclass(frozen=True, slots=True)
class ComparedPhase:
    """A phase that both runs had; the last row is the whole."""

    phase: Phase
    rows: tuple[ComparedRow, ...]

    @property
    def total(self) -> ComparedRow:
        """Wall time of the steps."""
        return self.rows[-1]

    def telling_speedup(self, row: ComparedRow) -> float | None:
        """Its speed-up, where the row takes enough of the time for it to mean something."""
        longest = max(self.total.before_ms, self.total.after_ms)
        is_telling = max(row.before_ms, row.after_ms) > _TELLING_SHARE * longest
        return row.speedup if is_telling else None


@dataclass(frozen=True, slots=True)
class ProfileComparison:
    """Time a token by operator, so that runs of different lengths compare.

    Operators that one run has in other formats of weights than the other are one row.
    """

    names: tuple[str, str]
    phases: tuple[ComparedPhase, ...]

    @staticmethod
    def of(
        before: OpProfile, after: OpProfile, names: tuple[str, str] | None = None
    ) -> ProfileComparison:
        """Compare the phases that both have; `ConfigError` where they share none."""
        pairs = [
            (one, other)
            for one in before.phases
            for other in after.phases
            if one.phase == other.phase
        ]
        if not pairs:
            raise ConfigError(
                "these profiles have no phase in common: profile prefill in both, or decode in both"
            )
        phases = tuple(_compared(one, other) for one, other in pairs)
        return ProfileComparison(names or _names(before, after), phases)

    def report(self, lang: Language | None = None) -> str:
        """Both runs as text."""
        return "\n".join(self._lines(spoken(lang)))

    def plot(self, lang: Language | None = None, theme: Theme = "light") -> Picture:
        """Pairs of bars by operator. Raises `ConfigError` without matplotlib."""
        from dashinfer_lab.profiling.picture import draw

        return draw(self._paint, (5.6 * len(self.phases), 4.4), lang, theme)

    def as_dict(self) -> dict[str, Any]:
        """Every figure, for JSON."""
        return {
            "names": list(self.names),
            **{
                each.phase: [{**asdict(row), "speedup": row.speedup} for row in each.rows]
                for each in self.phases
            },
        }

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        from dashinfer_lab.profiling.html import comparison_fragment

        return comparison_fragment(self)

    def _repr_png_(self) -> bytes | None:
        from dashinfer_lab.profiling.picture import can_draw

        return self.plot().png if can_draw() else None

    def _lines(self, lang: Language) -> Iterator[str]:
        widths = [max(len(name), 10) for name in self.names]
        head = f"{'opname'.ljust(_OPERATOR_WIDTH)} {self.names[0].rjust(widths[0])}"
        for each in self.phases:
            yield f"=== {say(lang, each.phase)}: {say(lang, 'per_token')} ==="
            yield f"{head} {self.names[1].rjust(widths[1])} {'x':>7}"
            for row in each.rows:
                one, other = (
                    (f"{ms:.3f}" if ms else "-").rjust(width)
                    for ms, width in zip((row.before_ms, row.after_ms), widths, strict=True)
                )
                ratio = each.telling_speedup(row)
                speedup = "-" if ratio is None else f"{ratio:.2f}"
                yield f"{row.opname.ljust(_OPERATOR_WIDTH)} {one} {other} {speedup:>7}"
            yield ""

    def _paint(self, pen: Pen) -> None:
        subplots: Any = pen.figure.subplots(1, len(self.phases), squeeze=False)
        for axes, each in zip(subplots[0], self.phases, strict=True):
            rows = sorted(each.rows[:-1], key=lambda row: -max(row.before_ms, row.after_ms))
            rows = [*rows[:_MOST_BARS], each.total]
            for column, (shift, name) in enumerate(zip((-0.2, 0.2), self.names, strict=True)):
                values = [row.after_ms if column else row.before_ms for row in rows]
                places = [place + shift for place in range(len(rows))]
                colour = pen.palette.series[column]
                axes.barh(places, values, 0.36, color=colour, label=pen.drawable(name))
            for place, row in enumerate(rows):
                ratio = each.telling_speedup(row)
                if ratio is not None:
                    longer = max(row.before_ms, row.after_ms)
                    axes.text(longer, place, f" {ratio:.2f}×", va="center", fontsize=8)
            axes.set_yticks(range(len(rows)), [pen.drawable(row.opname) for row in rows])
            axes.tick_params(axis="y", length=0, labelcolor=pen.palette.ink)
            axes.invert_yaxis()
            axes.margins(x=0.15)
            axes.grid(visible=False, axis="y")
            axes.set_xlabel(pen.say("per_token"))
            axes.set_title(pen.say(each.phase))
        pen.figure.legend(
            *subplots[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2
        )


def _compared(before: PhaseProfile, after: PhaseProfile) -> ComparedPhase:
    one, other = _paired(_per_token(before), _per_token(after))
    total = ComparedRow("total", one.pop("total"), other.pop("total"))
    names = sorted({*one, *other}, key=lambda name: -max(one.get(name, 0), other.get(name, 0)))
    rows = [ComparedRow(name, one.get(name, 0.0), other.get(name, 0.0)) for name in names]
    return ComparedPhase(before.phase, (*rows, total))


def _paired(
    before: dict[str, float], after: dict[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Sum up operators that differ by the format of weights alone, where the runs differ in it."""
    formats: list[dict[str, set[str]]] = [{}, {}]
    for times, found in zip((before, after), formats, strict=True):
        for name in times:
            found.setdefault(_FORMAT.sub("", name), set()).add(name)
    one, other = formats
    paired = {stem for stem in one if one[stem] != other.get(stem, one[stem])}
    summed: list[dict[str, float]] = [{}, {}]
    for times, sums in zip((before, after), summed, strict=True):
        for name, ms in times.items():
            stem = _FORMAT.sub("", name)
            key = stem if stem in paired else name
            sums[key] = sums.get(key, 0.0) + ms
    return summed[0], summed[1]


def _per_token(phase: PhaseProfile) -> dict[str, float]:
    """Milliseconds a token by operator, and of the whole."""
    scale = 1 / phase.num_tokens
    rows = [*phase.forward_rows(), phase.inputs_row()]
    times = {row.opname: row.total_ms * scale for row in rows}
    return {**times, "total": phase.wall_seconds * 1e3 * scale}


def _names(before: OpProfile, after: OpProfile) -> tuple[str, str]:
    """What differs between the machines of two runs; else before and after."""
    one, other = before.machine, after.machine
    if one is None or other is None or one == other:
        return "before", "after"
    kinds = ("model", "scheme", "isa", "threads_text")
    differing = [kind for kind in kinds if getattr(one, kind) != getattr(other, kind)]
    before_name, after_name = (
        ", ".join(getattr(machine, kind) for kind in differing) for machine in (one, other)
    )
    return before_name, after_name
