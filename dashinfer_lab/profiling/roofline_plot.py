"""The roofline: operators by operations a byte and GFLOP/s, under the machine's own limits.

Williams, Waterman, Patterson 2009.
"""

from __future__ import annotations

from math import atan2, degrees
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.profiling.achieved import Achieved
from dashinfer_lab.profiling.colours import operator_colours
from dashinfer_lab.profiling.names_beside import Spot, places_of_names
from dashinfer_lab.profiling.picture import Pen

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile
    from jit_kernels.bench import Roof

__all__ = ["paint_roofline"]

_MARKERS: Final = {"prefill": "s", "decode": "o"}
_LABELLED_SHARE: Final = 0.02
_SMALLEST_SHARE: Final = 0.001
_ROOM: Final = 3.0  # beside the outermost points, as a factor


def paint_roofline(pen: Pen, axes: Any, profile: OpProfile) -> None:
    """A point for each operator of each phase; its area is its share of the phase's time."""
    axes.set_title(pen.say("roofline"))
    axes.set_xscale("log")
    axes.set_yscale("log")
    colours = operator_colours(profile, pen.palette)
    points: list[tuple[str, Achieved, float]] = []
    for phase in profile.phases:
        for each in phase.achieved_by_operator():
            share = each.seconds / phase.wall_seconds
            if each.gflops and each.intensity and share > _SMALLEST_SHARE:
                points.append((phase.phase, each, share))
    _set_limits(axes, points, profile.roof)
    if profile.roof is not None:
        _paint_roof(pen, axes, profile.roof)
    for phase, each, share in points:
        axes.scatter(
            each.intensity,
            each.gflops,
            s=_area(share),
            marker=_MARKERS[phase],
            color=colours[each.opname],
            edgecolor=pen.palette.paper,
            linewidth=0.8,
            alpha=0.92,
            zorder=3,
        )
    pen.finally_do(lambda: _label(pen, axes, [(each, share) for _, each, share in points]))
    handles = [
        axes.scatter(
            [], [], marker=_MARKERS[p.phase], color=pen.palette.faint, label=pen.say(p.phase)
        )
        for p in profile.phases
    ]
    axes.legend(handles=handles, loc="lower right")
    axes.set_xlabel(pen.say("intensity"))
    axes.set_ylabel(pen.say("gflops_axis"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")


def _set_limits(axes: Any, points: list[tuple[str, Achieved, float]], roof: Roof | None) -> None:
    across = [each.intensity or 1.0 for _, each, _ in points] or [1.0]
    up = [each.gflops or 1.0 for _, each, _ in points] or [1.0]
    if roof is not None:
        across.append(roof.fma_peak_gflops / roof.read_bandwidth_gbs)
        up.append(roof.fma_peak_gflops)
    axes.set_xlim(min(across) / _ROOM, max(across) * _ROOM)
    axes.set_ylim(min(up) / _ROOM, max(up) * _ROOM)


def _paint_roof(pen: Pen, axes: Any, roof: Roof) -> None:
    """The slope of memory, the ceiling of multiply-adds, and what each is."""
    bandwidth, peak = roof.read_bandwidth_gbs, roof.fma_peak_gflops
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    ridge = peak / bandwidth
    line = {"color": pen.palette.ink, "linewidth": 1.6, "zorder": 2}
    axes.plot([left, ridge, right], [left * bandwidth, peak, peak], **line)
    axes.plot([ridge, ridge], [bottom, peak], color=pen.palette.faint, linewidth=0.8, linestyle=":")
    axes.annotate(
        pen.say("compute_roof", peak=peak),
        (ridge, peak),
        xytext=(6, 5),
        textcoords="offset points",
        fontsize=8.5,
    )
    pen.finally_do(lambda: _name_slope(pen, axes, bandwidth))
    axes.fill_between(
        [left, ridge, right],
        [left * bandwidth, peak, peak],
        top,
        color=pen.palette.grid,
        alpha=0.35,
    )


def _name_slope(pen: Pen, axes: Any, bandwidth: float) -> None:
    """Along the slope, at its lower end."""
    start = max(axes.get_xlim()[0] * 1.15, axes.get_ylim()[0] * 1.6 / bandwidth)
    places = [(start * factor, start * factor * bandwidth) for factor in (1, 10)]
    (x, y), (right, above) = axes.transData.transform(places)
    axes.annotate(
        pen.say("bandwidth_roof", bandwidth=bandwidth),
        places[0],
        xytext=(-2, 4),
        textcoords="offset points",
        rotation=degrees(atan2(above - y, right - x)),
        rotation_mode="anchor",
        fontsize=8.5,
    )


def _label(pen: Pen, axes: Any, points: list[tuple[Achieved, float]]) -> None:
    """Name the points that took time."""
    from matplotlib.patheffects import withStroke

    halo = withStroke(linewidth=2.5, foreground=pen.palette.paper)
    points_a_pixel = 72 / pen.figure.dpi
    spots: list[Spot] = []
    for each, share in points:
        x, y = axes.transData.transform((each.intensity, each.gflops)) * points_a_pixel
        name = pen.drawable(each.opname) if share >= _LABELLED_SHARE else ""
        spots.append(Spot(x, y, _area(share) ** 0.5, name))
    for (each, _), spot, beside in zip(points, spots, places_of_names(spots), strict=True):
        axes.annotate(
            spot.name,
            (each.intensity, each.gflops),
            xytext=beside,
            textcoords="offset points",
            fontsize=8,
            zorder=4,
            path_effects=[halo],
        )


def _area(share: float) -> float:
    """Square points of a point that took `share` of the time."""
    return 26 + 420 * share
