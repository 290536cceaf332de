"""A profile as an HTML fragment for a notebook: tables with bars, no script, no style sheet.

Text and rules take the page's own colour, bars are half transparent: it reads on light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from dashinfer_lab.config import Language
from dashinfer_lab.profiling.achieved import Achieved
from dashinfer_lab.profiling.limit import limit_sentence
from dashinfer_lab.profiling.report import notes
from dashinfer_lab.profiling.timeline import RequestTimeline, StretchKind
from dashinfer_lab.profiling.words import say, spoken

if TYPE_CHECKING:
    from dashinfer_lab.profiling.comparison import ProfileComparison
    from dashinfer_lab.profiling.op_profile import OpProfile, PhaseProfile

__all__ = ["comparison_fragment", "fragment"]

_BLUE: Final = "rgba(68,119,170,.55)"
_ORANGE: Final = "rgba(238,136,102,.65)"
_GREY: Final = "rgba(128,128,128,.45)"
_RULE: Final = "1px solid rgba(128,128,128,.35)"
_FONT: Final = "font:13px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif"
_CELL: Final = "padding:2px 10px;text-align:right;white-space:nowrap"
_ROW: Final = f"background:none;border-bottom:{_RULE}"
_NAME: Final = f"{_CELL};text-align:left;font-family:ui-monospace,Menlo,Consolas,monospace"
_KIND_COLOURS: Final[dict[StretchKind, str]] = {"queue": _GREY, "prefill": _BLUE, "decode": _ORANGE}
_MOST_REQUESTS: Final = 64


def fragment(profile: OpProfile, lang: Language | None = None) -> str:
    """The profile's tables, prefill first; layers, requests and memory fold out."""
    language = spoken(lang)
    if not profile.steps:
        return f"<p>{escape(say(language, 'nothing'))}</p>"
    parts = [part for phase in profile.phases for part in _phase(phase, language)]
    parts.append(_requests(profile.requests(), language))
    if profile.memory is not None:
        parts.append(_memory(profile, language))
    lines = "".join(f"<div>{escape(line)}</div>" for line in notes(profile, language))
    foot = f'<div style="opacity:.7;font-size:12px;margin-top:8px;max-width:60em">{lines}</div>'
    return f'<div lang="{language}" style="{_FONT};overflow-x:auto">{"".join(parts)}{foot}</div>'


def comparison_fragment(found: ProfileComparison, lang: Language | None = None) -> str:
    """Both runs, a table for each phase."""
    language = spoken(lang)
    parts: list[str] = []
    for phase in found.phases:
        title = f"{say(language, phase.phase)} · {say(language, 'per_token')}"
        head = (say(language, "operator"), *found.names, say(language, "speedup"))
        longest = max(max(row.before_ms, row.after_ms) for row in phase.rows)
        rows = [
            [
                _name_cell(say(language, "total") if row is phase.total else row.opname),
                *(
                    _bar_cell(f"{ms:.3f}" if ms else "–", ms / longest, colour)
                    for ms, colour in ((row.before_ms, _BLUE), (row.after_ms, _ORANGE))
                ),
                _cell("–" if speedup is None else f"{speedup:.2f}×"),
            ]
            for row, speedup in ((row, phase.telling_speedup(row)) for row in phase.rows)
        ]
        parts += [_title(title), _table(head, rows)]
    return f'<div lang="{language}" style="{_FONT};overflow-x:auto">{"".join(parts)}</div>'


def _phase(phase: PhaseProfile, lang: Language) -> Iterator[str]:
    yield _title(
        say(
            lang,
            "phase" if len(phase.steps) != 1 else "phase_of_one_step",
            phase=say(lang, phase.phase),
            steps=len(phase.steps),
            tokens=phase.num_tokens,
            ms=phase.wall_seconds * 1e3,
            rate=phase.tokens_per_second,
            coverage=phase.coverage,
        )
    )
    yield f'<div style="max-width:60em">{escape(limit_sentence(phase, lang))}</div>'
    rows = {row.opname: row for row in (*phase.forward_rows(), phase.inputs_row())}
    achieved = {each.opname: each for each in phase.achieved_by_operator()}
    head = [say(lang, "operator"), say(lang, "calls"), say(lang, "time_ms"), say(lang, "share")]
    cells = [
        [
            _name_cell(row.opname),
            _cell(str(row.count)),
            _cell(f"{row.total_ms:.2f}"),
            _bar_cell(f"{row.percentage:.1f} %", row.percentage / 100, _BLUE),
            *_achieved_cells(achieved.get(row.opname), lang),
        ]
        for row in sorted(rows.values(), key=lambda row: -row.total_ms)
    ]
    whole = phase.achieved()
    cells.append(
        [
            _name_cell(say(lang, "total")),
            _cell(str(len(phase.steps))),
            _cell(f"{whole.seconds * 1e3:.2f}"),
            _cell(""),
            *_achieved_cells(whole, lang),
        ]
    )
    yield _table([*head, *_achieved_head(lang)], cells)
    layers = [
        [
            _name_cell(say(lang, "outside") if each.opname == "-" else each.opname),
            _cell(f"{each.seconds * 1e3:.2f}"),
            _bar_cell(
                f"{100 * each.seconds / phase.wall_seconds:.1f} %",
                each.seconds / phase.wall_seconds,
                _BLUE,
            ),
            *_achieved_cells(each, lang),
        ]
        for each in phase.achieved_by_layer()
    ]
    layer_head = [say(lang, "layer"), say(lang, "time_ms"), say(lang, "share")]
    yield _folded(say(lang, "layers"), _table([*layer_head, *_achieved_head(lang)], layers))


def _achieved_head(lang: Language) -> list[str]:
    return ["MB", "GB/s", "GFLOP/s", "flop/B", say(lang, "of_roof"), say(lang, "bound")]


def _achieved_cells(each: Achieved | None, lang: Language) -> list[str]:
    if each is None or each.work is None:
        return [_cell("–")] * 6
    fraction, bound = each.roof_fraction, each.bound
    return [
        _cell(f"{each.work.num_bytes / 1e6:.1f}"),
        _cell(_figure(each.gbs)),
        _cell(_figure(each.gflops)),
        _cell(f"{each.intensity or 0:.2f}"),
        _cell("–")
        if fraction is None
        else _bar_cell(f"{100 * fraction:.0f} %", min(1.0, fraction), _ORANGE),
        _cell("–" if bound is None else escape(say(lang, bound))),
    ]


def _figure(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1f}"


def _requests(lines: Sequence[RequestTimeline], lang: Language) -> str:
    """Bars on one axis of time."""
    begin = min(each.begin_seconds for line in lines for each in line.stretches)
    span = max(each.end_seconds for line in lines for each in line.stretches) - begin
    rows: list[list[str]] = []
    for line in lines[:_MOST_REQUESTS]:
        bars = "".join(
            f'<span title="{escape(say(lang, each.kind))} {each.seconds * 1e3:.1f} ms" style="'
            f"position:absolute;left:{100 * (each.begin_seconds - begin) / span:.2f}%;"
            f"width:max(1px,{100 * each.seconds / span:.2f}%);top:2px;bottom:2px;"
            f'background:{_KIND_COLOURS[each.kind]}"></span>'
            for each in line.stretches
        )
        track = f'<div style="position:relative;height:16px;width:24em">{bars}</div>'
        times = [_cell(f"{line.seconds(kind) * 1e3:.1f}") for kind in _KIND_COLOURS]
        tokens = [_cell(str(line.num_tokens(kind))) for kind in ("prefill", "decode")]
        rows.append(
            [_name_cell(str(line.request_id)), f'<td style="{_CELL}">{track}</td>', *times, *tokens]
        )
    kinds = [say(lang, kind) for kind in _KIND_COLOURS]
    word = say(lang, "tokens")
    head = ["", *(f"{kind} ms" for kind in kinds), *(f"{kind} {word}" for kind in kinds[1:])]
    table = _table([say(lang, "request_head"), *head], rows)
    return _folded(f"{say(lang, 'requests')} ({len(lines)})", table)


def _memory(profile: OpProfile, lang: Language) -> str:
    assert profile.memory is not None
    parts = profile.memory.parts()
    largest = max(parts.values())
    rows = [
        [_name_cell(say(lang, kind)), _bar_cell(f"{size / 1e6:.2f}", size / largest, _BLUE, "18em")]
        for kind, size in parts.items()
    ]
    used = sum(len(pages) for _, pages in profile.page_owners)
    facts = {"used": used, "total": profile.memory.num_pages, "tokens": profile.memory.page_tokens}
    note = f"<div>{escape(say(lang, 'pages_title', **facts))}</div>"
    return _folded(say(lang, "memory_title"), _table(["", "MB"], rows) + note)


def _title(text: str) -> str:
    return f'<div style="font-weight:600;margin:10px 0 4px">{escape(text)}</div>'


def _folded(title: str, content: str) -> str:
    summary = f'<summary style="cursor:pointer;opacity:.85">{escape(title)}</summary>'
    return f'<details style="margin:4px 0">{summary}{content}</details>'


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    styles = [f"{_CELL};font-weight:600;text-align:left", f"{_CELL};font-weight:600"]
    cells = "".join(
        f'<th style="{styles[min(place, 1)]}">{escape(title)}</th>'
        for place, title in enumerate(head)
    )
    body = "".join(f'<tr style="{_ROW}">{"".join(row)}</tr>' for row in rows)
    return (
        '<table style="border-collapse:collapse;border:0;margin:2px 0;color:inherit;'
        'font-size:inherit;font-variant-numeric:tabular-nums">'
        f'<thead><tr style="{_ROW}">{cells}</tr></thead><tbody>{body}</tbody></table>'
    )


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{text}</td>'


def _name_cell(text: str) -> str:
    return f'<td style="{_NAME}">{escape(text)}</td>'


def _bar_cell(text: str, fraction: float, colour: str, width: str = "5.5em") -> str:
    """A figure over a bar that fills `fraction` of the cell."""
    fill = f"linear-gradient(to right,{colour} {100 * fraction:.1f}%,transparent 0)"
    return f'<td style="{_CELL};min-width:{width};background:{fill}">{text}</td>'
