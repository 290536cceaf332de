"""Pictures of a profile by kind; each kind is painted by its own module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling.memory_plot import paint_memory, paint_totals
from dashinfer_lab.profiling.picture import Pen, Picture, Theme, draw
from dashinfer_lab.profiling.report import machine_text
from dashinfer_lab.profiling.roofline_plot import paint_roofline
from dashinfer_lab.profiling.time_plots import paint_operators, paint_requests, paint_timeline

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile

__all__ = ["KINDS", "PlotKind", "plot"]

PlotKind = Literal["overview", "roofline", "operators", "timeline", "requests", "memory"]
Painter = Callable[[Pen, "OpProfile"], None]


def plot(
    profile: OpProfile, kind: PlotKind, lang: Language | None = None, theme: Theme = "light"
) -> Picture:
    """Draw one kind of picture. Raises `ConfigError` where it cannot."""
    if kind not in KINDS:
        raise ConfigError(f"there is no plot {kind!r}; there are {', '.join(KINDS)}")
    if not profile.steps:
        raise ConfigError("no step was profiled, so there is nothing to draw")
    painter, size = KINDS[kind]
    return draw(lambda pen: painter(pen, profile), size, lang, theme)


def _overview(pen: Pen, profile: OpProfile) -> None:
    """Operators and roofline above, requests and memory below, what ran on top."""
    if profile.machine is not None:
        title = pen.drawable(machine_text(profile.machine, pen.lang))
        pen.figure.suptitle(title, x=0.01, ha="left", color=pen.palette.faint, fontsize=10)
    grid = pen.figure.add_gridspec(2, 2, height_ratios=(2.1, 1), width_ratios=(1, 1.35))
    paint_operators(pen, pen.figure.add_subplot(grid[0, 0]), profile)
    paint_roofline(pen, pen.figure.add_subplot(grid[0, 1]), profile)
    if profile.memory is None:
        paint_requests(pen, pen.figure.add_subplot(grid[1, :]), profile)
        return
    paint_requests(pen, pen.figure.add_subplot(grid[1, 0]), profile)
    paint_totals(pen, pen.figure.add_subplot(grid[1, 1]), profile)


def _roofline(pen: Pen, profile: OpProfile) -> None:
    paint_roofline(pen, pen.figure.add_subplot(), profile)


def _operators(pen: Pen, profile: OpProfile) -> None:
    paint_operators(pen, pen.figure.add_subplot(), profile)


def _requests(pen: Pen, profile: OpProfile) -> None:
    paint_requests(pen, pen.figure.add_subplot(), profile)


KINDS: Final[dict[str, tuple[Painter, tuple[float, float]]]] = {
    "overview": (_overview, (12.5, 8.4)),
    "roofline": (_roofline, (8.2, 5.4)),
    "operators": (_operators, (6.4, 4.6)),
    "timeline": (paint_timeline, (11, 4.2)),
    "requests": (_requests, (8.2, 3.2)),
    "memory": (paint_memory, (11, 7.2)),
}
"""What paints each kind, and its size in inches."""
