"""How all views look: one style sheet that follows the page's own light or dark colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

__all__ = ["COLOURS", "STYLE", "bar", "facts", "note", "table"]

COLOURS: Final = {
    "blue": "#4477aa",
    "orange": "#ee8866",
    "green": "#44aa77",
    "red": "#bb5566",
    "grey": "rgba(128,128,128,.45)",
}
"""The same as in the pictures of profiles; told apart by the commonest colour blindnesses."""

_RULES: Final = """
.dl-view{--dl-ink:var(--jp-ui-font-color1,currentColor);--dl-rule:rgba(128,128,128,.3);
  color:var(--dl-ink);font:13px/1.5 system-ui,-apple-system,'Segoe UI','Noto Sans CJK SC',
  'PingFang SC','Microsoft YaHei',sans-serif;border:1px solid var(--dl-rule);border-radius:10px;
  padding:12px 16px;max-width:1040px;box-sizing:border-box;overflow:hidden}
.dl-view .widget-html-content{line-height:1.5;font-size:13px;color:var(--dl-ink);width:100%;
  min-width:0}
.dl-view .widget-html,.dl-view .jupyter-widget-html{height:auto;min-width:0}
.dl-view>.widget-hbox,.dl-view>.widget-toggle-buttons{margin-bottom:6px}
.dl-title{font-size:15px;font-weight:650;margin:0 0 6px}
.dl-quiet{opacity:.68}.dl-small{font-size:12px}
.dl-note{margin:6px 0;padding:6px 10px;border-left:3px solid #4477aa;
  background:rgba(68,119,170,.1);border-radius:0 6px 6px 0}
.dl-bad{border-color:#bb5566;background:rgba(187,85,102,.12)}
.dl-good{border-color:#44aa77;background:rgba(68,170,119,.12)}
.dl-warn{border-color:#ee8866;background:rgba(238,136,102,.12)}
.dl-view table{border-collapse:collapse;margin:4px 0;font-size:13px;
  font-variant-numeric:tabular-nums}
.dl-view th{font-weight:600;opacity:.75;text-align:right;padding:2px 10px;background:none}
.dl-view td{text-align:right;padding:2px 10px;white-space:nowrap;border-top:1px solid
  var(--dl-rule);background:none}
.dl-view tr{background:none!important}
.dl-view td:first-child,.dl-view th:first-child{text-align:left}
.dl-facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(112px,1fr));gap:10px 14px;
  margin:4px 0 8px}
.dl-facts b{display:block;font-size:18px;font-weight:600;font-variant-numeric:tabular-nums}
.dl-facts span{opacity:.68;font-size:12px}
.dl-bar{display:flex;height:12px;border-radius:6px;overflow:hidden;margin:6px 0;
  background:rgba(128,128,128,.18)}
.dl-view svg{display:block;max-width:100%;height:auto;font:11px system-ui,sans-serif}
.dl-view svg text{fill:var(--dl-ink)}
.dl-view img{max-width:100%;border-radius:6px}
.dl-code{overflow:auto;max-height:440px;margin:4px 0;padding:10px 12px;border-radius:6px;
  background:rgba(128,128,128,.09);font:12px/1.45 ui-monospace,Menlo,Consolas,monospace;
  white-space:pre;tab-size:4;color:var(--dl-ink)}
.dl-code .k,.dl-code .kn,.dl-code .kc,.dl-code .ow{color:#8866cc}
.dl-code .kt,.dl-code .nb,.dl-code .nc{color:#2f7fae}.dl-code .nf{color:#4477aa;font-weight:600}
.dl-code .c,.dl-code .c1,.dl-code .sd{opacity:.6;font-style:italic}
.dl-code .s,.dl-code .s1,.dl-code .s2{color:#3c9166}
.dl-code .mi,.dl-code .mf,.dl-code .mh,.dl-code .m{color:#c4623a}
.dl-turns{max-height:460px;overflow-y:auto;display:flex;flex-direction:column;
  gap:8px;margin:4px 0}
.dl-turn{white-space:pre-wrap;overflow-wrap:anywhere;padding:8px 12px;border-radius:10px;
  max-width:86%}
.dl-user{align-self:flex-end;background:rgba(68,119,170,.16)}
.dl-model{align-self:flex-start;background:rgba(128,128,128,.11)}
.dl-under{display:block;font-size:11.5px;opacity:.68;margin-top:3px}
"""
STYLE: Final = f"<style>{_RULES}</style>"
"""A style sheet for everything inside an element of class `dl-view`."""


def note(text: str, kind: str = "") -> str:
    """A sentence that stands out; `kind` is "good", "warn", "bad" or nothing."""
    return f'<div class="dl-note{f" dl-{kind}" if kind else ""}">{escape(text)}</div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names with their values, large."""
    cells = (
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in pairs
    )
    return f'<div class="dl-facts">{"".join(cells)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Text in columns, the first one a name."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def bar(parts: Iterable[tuple[float, str]]) -> str:
    """Shares of a whole (0 to 1), each in one of the `COLOURS`."""
    cells = (
        f'<div style="width:{100 * min(max(share, 0.0), 1.0):.2f}%;background:{COLOURS[colour]}">'
        "</div>"
        for share, colour in parts
    )
    return f'<div class="dl-bar">{"".join(cells)}</div>'
