"""One matrix looked at closely: its weights, what quantising leaves over, every group size."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Final

import numpy as np

from dashinfer_lab.quantize import GROUP_SIZES, GroupSize
from dashinfer_lab.widgets.charts import histogram
from dashinfer_lab.widgets.damage import Bits, damage
from dashinfer_lab.widgets.theme import table
from dashinfer_lab.widgets.weight_samples import MatrixSample

__all__ = ["closely_html", "sizes_html"]

_BINS: Final = 97


def closely_html(
    sample: MatrixSample, group_size: GroupSize, bits: Bits, say: Callable[..., str]
) -> str:
    """Histograms of the weights and of what quantising leaves over."""
    found = damage(sample.rows, group_size, bits)
    parts: list[str] = []
    titles = (say("explorer.weights", name=sample.name), say("explorer.errors"))
    for title, values, colour in zip(
        titles, (sample.rows, found.residual), ("blue", "orange"), strict=True
    ):
        counts, edges = np.histogram(values, _BINS)
        drawn = histogram(counts.tolist(), float(edges[0]), float(edges[-1]), colour)
        parts.append(f"<div><b>{escape(title)}</b>{drawn}</div>")
    low, high = float(sample.rows.min()), float(sample.rows.max())
    under = say("explorer.steps", step=found.median_step, low=low, high=high)
    return (
        '<div style="display:grid;grid-template-columns:repeat(auto-fit,minmax(280px,1fr));'
        f'gap:18px;margin-top:12px">{"".join(parts)}</div><div class="dl-quiet dl-small">'
        f"{escape(under)}</div>"
    )


def sizes_html(sample: MatrixSample, bits: Bits, say: Callable[..., str]) -> str:
    """Error, size and step of the matrix for every group size."""
    head = ["", *(say(f"explorer.{c}_head") for c in ("error", "bits", "size", "step"))]
    rows: list[list[str]] = []
    for size in GROUP_SIZES:
        found = damage(sample.rows, size, bits)
        share, stored = found.bits_per_weight / 16, f"{found.bits_per_weight:.2f}"
        error, step = f"{found.relative_error:.3%}", f"{found.median_step:.2e}"
        rows.append([str(size), error, stored, f"{share:.0%}", step])
    title = escape(say("explorer.sizes", name=sample.name))
    return f'<div style="margin-top:12px"><b>{title}</b></div>{table(head, rows)}'
