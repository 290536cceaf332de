"""What a call of a kernel costs and took, as HTML."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Final

from dashinfer_lab.profiling import OpProfile, ProfiledOp
from dashinfer_lab.widgets.kernel_facts import (
    DECODE_POSITION,
    PREFILL_TOKENS,
    KernelView,
    work_cases,
)
from dashinfer_lab.widgets.theme import note, table

__all__ = ["code_html", "cost_html", "measured_html"]


_MOST_LINES: Final = 1500
_MOST_COLOURED: Final = 60_000  # characters: colours would double what already strains a page
_LEXERS: Final = {"source": "python", "ir": "llvm", "llvm": "llvm", "asm": "gas"}


def code_html(text: str, view: KernelView, kernel: str, say: Callable[..., str]) -> str:
    """Code with colours and its number of lines; assembly from the function's label on."""
    lines = text.splitlines()
    if view == "asm":
        labels = (i for i, line in enumerate(lines) if line.startswith(kernel))
        lines = lines[next(labels, 0) :]
    key = "kernel.cut" if len(lines) > _MOST_LINES else "kernel.lines"
    count = escape(say(key, count=len(lines), shown=_MOST_LINES))
    shown = _coloured("\n".join(lines[:_MOST_LINES]), view)
    return f'<div class="dl-code">{shown}</div><div class="dl-quiet dl-small">{count}</div>'


def _coloured(text: str, view: KernelView) -> str:
    """`text` as escaped HTML, its words in classes of the theme."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    if len(text) > _MOST_COLOURED:
        return escape(text)
    return str(highlight(text, get_lexer_by_name(_LEXERS[view]), HtmlFormatter(nowrap=True)))


def cost_html(op: ProfiledOp | None, say: Callable[..., str]) -> str:
    """Bytes and operations of one call, decoding and in a prefill."""
    if op is None:
        return f'<div class="dl-quiet dl-small">{escape(say("kernel.no_cost"))}</div>'
    columns = ("weight_bytes", "kv_bytes", "activation_bytes", "flops", "intensity")
    head = [say("kernel.case"), *(say(f"kernel.{column}") for column in columns)]
    rows: list[list[str]] = []
    for case in work_cases(op):
        name = say(f"kernel.{case.kind}", position=DECODE_POSITION, tokens=PREFILL_TOKENS)
        work = case.work
        if work is None:
            rows.append([name, *"–" * len(columns)])
            continue
        sizes = (work.weight_bytes, work.kv_bytes, work.activation_bytes)
        rows.append([name, *map(_size, sizes), _count(work.flops), f"{work.intensity:.2f}"])
    title = escape(say("kernel.cost", name=op.name))
    return f'<div style="margin-top:10px"><b>{title}</b></div>{table(head, rows)}'


def measured_html(profile: OpProfile | None, kernel: str, say: Callable[..., str]) -> str:
    """What calls of `kernel` took in `profile`; nothing without one."""
    said = [
        say(
            "kernel.measured",
            calls=row.count,
            mean=row.ave_ms,
            share=row.percentage,
            phase=say(f"phase.{phase.phase}"),
        )
        for phase in (profile.phases if profile is not None else ())
        for row in phase.by_operator()
        if row.opname == kernel
    ]
    return "".join(map(note, said))


def _size(num_bytes: int) -> str:
    if num_bytes >= 1e6:
        return f"{num_bytes / 1e6:.2f} MB"
    return f"{num_bytes / 1e3:.1f} kB" if num_bytes >= 1e3 else f"{num_bytes} B"


def _count(number: int) -> str:
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number / 1e3:.1f} k"
