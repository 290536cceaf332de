"""Figures of a benchmark against those kept before, for a person and for `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashinfer_lab.benchmark import Figure, Regression, keep, kept
from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.output import printable, remark

__all__ = ["HeldFigures", "held_against", "show_regressions"]


@dataclass(frozen=True, slots=True)
class HeldFigures:
    """What a comparison found; `since` is the version whose figures were kept, None if none was."""

    compared: bool
    since: str | None
    regressions: tuple[Regression, ...]
    kept_in: str | None

    def as_dict(self) -> dict[str, object]:
        """Names and values, for `--json`; nothing where no baseline was asked for."""
        if not self.compared and self.kept_in is None:
            return {}
        listed = [regression.as_dict() for regression in self.regressions]
        baseline = {"since": self.since, "regressions": listed, "kept_in": self.kept_in}
        return {"baseline": baseline}


def held_against(
    key: str, figures: Sequence[Figure], *, compare: bool, replace: bool
) -> HeldFigures:
    """Hold `figures` against the baseline of `key`, and keep them where asked or where none is."""
    before = kept(key) if compare else None
    found = tuple(before.regressions(figures)) if before else ()
    path = keep(key, figures) if replace or (compare and before is None) else None
    return HeldFigures(compare, before.version if before else None, found, path and str(path))


def show_regressions(held: HeldFigures) -> None:
    """Say on stderr what became worse, what was compared and what was kept."""
    for it in held.regressions:
        figures = {"before": it.before, "now": it.now, "percent": it.percent}
        remark(text("bench.regression", name=it.name, **figures))
    if held.since and not held.regressions:
        remark(text("bench.no_regression", version=held.since))
    if held.kept_in:
        remark(text("bench.kept", path=printable(held.kept_in)))
