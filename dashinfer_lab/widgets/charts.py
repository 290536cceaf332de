"""Small charts as SVG: the page's own fonts and colours, so Chinese text needs no font of ours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10

from dashinfer_lab.widgets.theme import COLOURS

__all__ = ["heat_map", "histogram", "line"]

_LOW, _HIGH = (68, 119, 170), (238, 136, 102)
_LABEL = 78


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    chosen: tuple[int, int] | None = None,
) -> str:
    """Cells from blue (the least) to orange (the most), on a logarithmic scale; None is empty."""
    known = [value for line in values for value in line if value]
    low, high = (log10(min(known)), log10(max(known))) if known else (0.0, 0.0)
    size = max(14.0, min(34.0, 860 / max(len(columns), 1)))
    parts: list[str] = []
    for j, name in enumerate(columns):
        x = _LABEL + (j + 0.5) * size
        parts.append(f'<text x="{x:.1f}" y="11" text-anchor="middle">{escape(name)}</text>')
    for i, name in enumerate(rows):
        y = 16 + i * 24
        parts.append(f'<text x="{_LABEL - 6}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        for j, value in enumerate(values[i]):
            if value is None:
                continue
            share = (log10(value) - low) / (high - low) if value and high > low else 0.0
            edge = ' stroke="currentColor" stroke-width="2"' if (i, j) == chosen else ""
            parts.append(
                f'<rect x="{_LABEL + j * size + 1:.1f}" y="{y + 1}" width="{size - 2:.1f}" '
                f'height="22" rx="3" fill="{_mixed(share)}"{edge}><title>{escape(name)} '
                f"{escape(columns[j])}: {value:.3%}</title></rect>"
            )
    return _svg(_LABEL + size * len(columns) + 4, 22 + 24 * len(rows), parts)


def histogram(counts: Sequence[int], low: float, high: float, colour: str = "blue") -> str:
    """Bars of `counts` between `low` and `high`; heights as square roots, so that tails show."""
    width, height = 430.0, 132.0
    most = max(counts, default=0) or 1
    step = width / max(len(counts), 1)
    parts = [
        f'<rect x="{i * step:.2f}" y="{height - h:.2f}" width="{max(step - 0.6, 0.6):.2f}" '
        f'height="{h:.2f}" fill="{COLOURS[colour]}"><title>{count}</title></rect>'
        for i, count in enumerate(counts)
        if (h := (height - 6) * (count / most) ** 0.5) > 0
    ]
    parts.append(f'<path d="M0 {height}H{width}" stroke="currentColor" stroke-opacity=".4"/>')
    middle = (low + high) / 2
    marks = ((0.0, "start", low), (width / 2, "middle", middle), (width, "end", high))
    parts += [
        f'<text x="{x}" y="{height + 14}" text-anchor="{anchor}">{value:.3g}</text>'
        for x, anchor, value in marks
    ]
    return _svg(width, height + 18, parts)


def line(values: Sequence[float], colour: str, unit: str, top: float = 0.0) -> str:
    """One value after another over time, the newest at the right; `top` is a least height."""
    width, height = 430.0, 96.0
    most = max([*values, top]) or 1.0
    step = width / max(len(values) - 1, 1)
    points = " ".join(
        f"{i * step:.1f},{height - (height - 14) * value / most:.1f}"
        for i, value in enumerate(values)
    )
    fill = COLOURS[colour]
    parts = [f'<path d="M0 {height}H{width}" stroke="currentColor" stroke-opacity=".4"/>']
    if values:
        parts += [
            f'<polygon points="0,{height} {points} {width},{height}" fill="{fill}" opacity=".18"/>',
            f'<polyline points="{points}" fill="none" stroke="{fill}" stroke-width="2"/>',
            f'<text x="0" y="10">{most:.0f} {escape(unit)}</text>',
        ]
    return _svg(width, height + 2, parts)


def _mixed(share: float) -> str:
    mixed = (round(a + (b - a) * share) for a, b in zip(_LOW, _HIGH, strict=True))
    return f"rgb({','.join(map(str, mixed))})"


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
