"""Figures of an earlier benchmark, kept in the cache: what became a fifth worse is reported."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from dashinfer_lab import __version__
from dashinfer_lab.config import cache_root
from dashinfer_lab.hub.files import write_json

__all__ = ["Baseline", "Figure", "Regression", "keep", "kept"]

_TOLERATED: Final = 0.20


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured, by name; `more_is_better` holds of rates, not of times."""

    name: str
    value: float
    more_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Regression:
    """A figure that became worse by more than a fifth."""

    name: str
    before: float
    now: float

    @property
    def percent(self) -> float:
        """Change from `before` to `now`."""
        return 100 * (self.now / self.before - 1)

    def as_dict(self) -> dict[str, object]:
        """Names and values, for `--json`."""
        return {
            "name": self.name, "before": self.before, "now": self.now, "percent": self.percent,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was measured of one model, on one machine, by one benchmark: see `keep`."""

    version: str
    figures: dict[str, float]

    def regressions(self, figures: Iterable[Figure]) -> list[Regression]:
        """Figures that are worse than the baseline's by more than 20 %; unknown names are new."""
        return [
            Regression(figure.name, self.figures[figure.name], figure.value)
            for figure in figures
            if figure.name in self.figures and _is_worse(figure, self.figures[figure.name])
        ]


def _is_worse(figure: Figure, before: float) -> bool:
    if figure.more_is_better:
        return figure.value < before * (1 - _TOLERATED)
    return figure.value > before * (1 + _TOLERATED)


def kept(key: str) -> Baseline | None:
    """Return the baseline of `key`, None where none was kept or its file is damaged."""
    entry = _read(_path()).get(key, {})
    try:
        figures = {str(name): float(value) for name, value in entry["figures"].items()}
        return Baseline(str(entry["version"]), figures)
    except (TypeError, KeyError, AttributeError, ValueError):
        return None


def keep(key: str, figures: Iterable[Figure]) -> Path:
    """Keep `figures` as the baseline of `key`, in place of one before; return the file.

    `key` tells in words all that the figures depend on: model, weights, machine and benchmark.
    Raises OSError where the cache cannot be written.
    """
    path = _path()
    entry = {"version": __version__, "figures": {it.name: it.value for it in figures}}
    write_json(path, {**_read(path), key: entry})
    return path


def _path() -> Path:
    return cache_root() / "baselines.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent, or damaged: kept anew
        return {}
    return cast("dict[str, Any]", known) if isinstance(known, dict) else {}
