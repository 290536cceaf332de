"""Pictures of time: shares of operators, one step in order, requests from queue to last token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.profiling.colours import operator_colours
from dashinfer_lab.profiling.picture import Pen

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile, PhaseProfile
    from dashinfer_lab.profiling.steps import StepTimes

__all__ = ["paint_operators", "paint_requests", "paint_timeline"]

_MOST_BARS: Final = 8
_MOST_REQUESTS: Final = 32
_BAR: Final = 0.38
_WIDTH_OF_A_NUMBER: Final = 0.011  # of the figure


def paint_operators(pen: Pen, axes: Any, profile: OpProfile) -> None:
    """Bars of each operator's share of the time, a pair where there are both phases."""
    colours = operator_colours(profile, pen.palette)
    tables = [
        {row.opname: row.percentage for row in (*phase.forward_rows(), phase.inputs_row())}
        for phase in profile.phases
    ]
    names = sorted({n for table in tables for n in table}, key=lambda n: -max(_of(tables, n)))
    shown, rest = names[:_MOST_BARS], names[_MOST_BARS:]
    labels = [pen.drawable(name) for name in shown] + ([pen.say("others")] if rest else [])
    height = 2 * _BAR / len(tables)
    for position, (phase, table) in enumerate(zip(profile.phases, tables, strict=True)):
        values = [table.get(name, 0.0) for name in shown]
        values += [sum(table.get(name, 0.0) for name in rest)] if rest else []
        rows = [row - _BAR + (position + 0.5) * height for row in range(len(values))]
        axes.barh(
            rows,
            values,
            height * 0.88,
            color=[colours.get(name, pen.palette.quiet) for name in [*shown, ""]][: len(values)],
            alpha=1.0 if phase.phase == "decode" else 0.55,
        )
        for row, value in zip(rows, values, strict=True):
            text = f" {value:.1f} {pen.say(phase.phase)}" if value >= 0.05 else ""
            axes.text(value, row, text, va="center", fontsize=7.5, color=pen.palette.faint)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=pen.palette.ink)
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    axes.margins(x=0.22)
    axes.set_title(pen.say("where_time_goes"))
    axes.set_xlabel(pen.say("share_axis"))


def _of(tables: list[dict[str, float]], name: str) -> list[float]:
    return [table.get(name, 0.0) for table in tables]


def paint_timeline(pen: Pen, profile: OpProfile) -> None:
    """A median step of each phase: operations in order, layers marked above."""
    colours = operator_colours(profile, pen.palette)
    subplots = pen.figure.subplots(len(profile.phases), 1, squeeze=False)
    for axes, phase in zip(subplots[:, 0], profile.phases, strict=True):
        _paint_step(pen, axes, phase, _median_step(phase), colours)
    subplots[-1, 0].set_xlabel(pen.say("ms_axis"))
    named = [name for name, colour in colours.items() if colour != pen.palette.quiet]
    from matplotlib.patches import Patch

    handles = [Patch(color=colours[name], label=pen.drawable(name)) for name in named]
    pen.figure.legend(handles=handles, loc="outside lower center", ncols=len(named), fontsize=8)


def _median_step(phase: PhaseProfile) -> StepTimes:
    ordered = sorted(phase.steps, key=lambda step: step.wall_seconds)
    return ordered[len(ordered) // 2]


def _paint_step(
    pen: Pen, axes: Any, phase: PhaseProfile, step: StepTimes, colours: dict[str, str]
) -> None:
    cursor = step.input_seconds * 1e3
    axes.broken_barh([(0, cursor)], (0, 1), color=pen.palette.grid)
    bars: dict[str, list[tuple[float, float]]] = {}
    layers: dict[int, tuple[float, float]] = {}
    for op, seconds in zip(phase.ops, step.op_seconds, strict=True):
        width = float(seconds) * 1e3
        bars.setdefault(op.kernel, []).append((cursor, width))
        if op.layer is not None:
            layers[op.layer] = (layers.get(op.layer, (cursor, 0.0))[0], cursor + width)
        cursor += width
    for kernel, spans in bars.items():
        axes.broken_barh(spans, (0, 1), color=colours[kernel], linewidth=0)
    for layer, (begin, end) in layers.items():
        axes.broken_barh([(begin, end - begin)], (1.06, 0.16), color=_alternating(pen, layer))
        if end - begin > _WIDTH_OF_A_NUMBER * step.wall_seconds * 1e3:
            axes.text((begin + end) / 2, 1.3, str(layer), ha="center", va="bottom", fontsize=6.5)
    total = step.wall_seconds * 1e3
    axes.broken_barh([(cursor, max(0.0, total - cursor))], (0, 1), color=pen.palette.grid)
    axes.set_xlim(0, total)
    axes.set_ylim(0, 1.55)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    axes.set_title(pen.say("median_step", phase=pen.say(phase.phase), ms=total))
    beside = {"ha": "right", "va": "bottom", "fontsize": 6.5, "color": pen.palette.faint}
    axes.text(-0.004, 1.3, pen.say("layer"), transform=axes.get_yaxis_transform(), **beside)


def _alternating(pen: Pen, layer: int) -> str:
    return pen.palette.quiet if layer % 2 else pen.palette.faint


def paint_requests(pen: Pen, axes: Any, profile: OpProfile) -> None:
    """A line for each of the first requests: queue, prefill chunks, decoding."""
    lines = profile.requests()[:_MOST_REQUESTS]
    origin = min(each.begin_seconds for line in lines for each in line.stretches)
    colours = {
        "queue": pen.palette.quiet,
        "prefill": pen.palette.series[0],
        "decode": pen.palette.series[1],
    }
    for row, line in enumerate(lines):
        for each in line.stretches:
            axes.broken_barh(
                [(each.begin_seconds - origin, each.seconds)],
                (row - 0.34, 0.68),
                facecolor=colours[each.kind],
                edgecolor=pen.palette.paper,
                linewidth=0.6,
            )
    axes.set_yticks(range(len(lines)), [str(line.request_id) for line in lines])
    axes.set_ylim(max(len(lines), 3) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(pen.say("seconds_axis"))
    axes.set_title(pen.say("requests_title"))
    handles = [
        axes.barh([0], [0], color=colour, label=pen.say(kind)) for kind, colour in colours.items()
    ]
    axes.legend(handles=handles, loc="upper right", ncols=3, bbox_to_anchor=(1, 1.17), fontsize=8)
