"""Pictures of memory: what the model holds, who used which page, how the arena is shared."""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling.memory_map import MemoryMap
from dashinfer_lab.profiling.picture import Pen

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile

__all__ = ["paint_memory", "paint_totals"]

_MB = 1e6
_MOST_CELLS = 2048


def paint_memory(pen: Pen, profile: OpProfile) -> None:
    """Totals above; pages by request and weights by layer; the arena over a step below."""
    memory = _memory(profile)
    grid = pen.figure.add_gridspec(3, 2, height_ratios=(0.8, 1.1, 1.7))
    paint_totals(pen, pen.figure.add_subplot(grid[0, :]), profile)
    _paint_layers(pen, pen.figure.add_subplot(grid[1, 0]), memory)
    _paint_pages(pen, pen.figure.add_subplot(grid[1, 1]), profile, memory)
    _paint_arena(pen, pen.figure.add_subplot(grid[2, :]), memory)


def _memory(profile: OpProfile) -> MemoryMap:
    if profile.memory is None:
        raise ConfigError("this profile holds no memory map: take it with LLM.profile or profiling")
    return profile.memory


def paint_totals(pen: Pen, axes: Any, profile: OpProfile) -> None:
    """Bars of bytes by kind; of the pages, those in use are dark."""
    memory = _memory(profile)
    parts = memory.parts()
    used = sum(len(pages) for _, pages in profile.page_owners) * memory.page_bytes
    series = pen.palette.series
    for row, (kind, num_bytes) in enumerate(parts.items()):
        pages = kind == "kv"
        axes.barh([row], [num_bytes / _MB], 0.66, color=series[row], alpha=0.35 if pages else 1.0)
        if pages:
            axes.barh([row], [used / _MB], 0.66, color=series[row])
        label = f" {num_bytes / _MB:.1f} MB"
        axes.text(num_bytes / _MB, row, label, va="center", fontsize=8, color=pen.palette.faint)
    axes.set_yticks(range(len(parts)), [pen.say(kind) for kind in parts])
    axes.tick_params(axis="y", length=0, labelcolor=pen.palette.ink)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(pen.say("mb_axis"))
    axes.set_title(pen.say("memory_title"))


def _paint_layers(pen: Pen, axes: Any, memory: MemoryMap) -> None:
    sizes = memory.weights_by_layer()
    layers = sorted(layer for layer in sizes if layer is not None)
    outside = sizes.get(None, 0) / _MB
    values = [sizes[layer] / _MB for layer in layers]
    axes.bar(range(len(values)), values, color=pen.palette.series[0])
    axes.bar([len(values) + 0.5], [outside], color=pen.palette.series[5])
    shown = range(0, len(layers), max(1, len(layers) // 10))
    labels = [*(str(layers[at]) for at in shown), pen.say("outside")]
    axes.set_xticks([*shown, len(values) + 0.5], labels)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(pen.say("mb_axis"))
    axes.set_title(pen.say("layer_weights"))


def _paint_pages(pen: Pen, axes: Any, profile: OpProfile, memory: MemoryMap) -> None:
    """A cell a page, coloured by the request that owned it; the first pages where they are many."""
    shown = min(memory.num_pages, _MOST_CELLS)
    columns = ceil(sqrt(shown * 4))
    cells = [[pen.palette.paper] * columns for _ in range(ceil(shown / columns))]
    owners = {page: row for row, (_, pages) in enumerate(profile.page_owners) for page in pages}
    for page in range(shown):
        colour = pen.palette.grid
        if page in owners:
            colour = pen.palette.series[owners[page] % len(pen.palette.series)]
        cells[page // columns][page % columns] = colour
    from matplotlib.colors import to_rgb

    axes.imshow([[to_rgb(cell) for cell in row] for row in cells], aspect="auto")
    axes.set_xticks([column + 0.5 for column in range(columns)], minor=True)
    axes.set_yticks([row + 0.5 for row in range(len(cells))], minor=True)
    axes.grid(visible=False, which="major")
    axes.grid(visible=True, which="minor", color=pen.palette.paper, linewidth=0.8)
    axes.tick_params(which="both", length=0, labelleft=False, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    facts = {"used": len(owners), "total": memory.num_pages, "tokens": memory.page_tokens}
    axes.set_title(pen.say("pages_title", **facts))


def _paint_arena(pen: Pen, axes: Any, memory: MemoryMap) -> None:
    """Bytes upwards, the program's operations to the right; a box is a buffer's life."""
    from matplotlib.patches import Rectangle

    scale = 1 / _MB
    for row, buffer in enumerate(sorted(memory.arena, key=lambda each: each.first_op)):
        width = buffer.last_op - buffer.first_op + 1
        colour = pen.palette.series[row % len(pen.palette.series)]
        axes.add_patch(
            Rectangle(
                (buffer.first_op, buffer.offset * scale),
                width,
                buffer.num_bytes * scale,
                facecolor=colour,
                edgecolor=pen.palette.paper,
                linewidth=0.4,
                alpha=0.85,
            )
        )
    axes.set_xlim(0, memory.num_ops)
    axes.set_ylim(0, memory.arena_bytes * scale)
    axes.set_ylabel(pen.say("mb_axis"))
    axes.set_xlabel(pen.say("operation_axis"))
    sizes = {"buffers": memory.buffer_bytes / _MB, "arena": memory.arena_bytes / _MB}
    axes.set_title(pen.say("arena_title", **sizes))
