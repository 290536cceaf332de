"""Whether a model fits, and how far its loading is, as HTML."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Final

from dashinfer_lab.widgets.fit import Fit, Verdict
from dashinfer_lab.widgets.theme import bar, facts, note

__all__ = ["fit_html", "progress_html"]

_KINDS: Final[dict[Verdict, str]] = {"fits": "good", "tight": "warn", "too_large": "bad"}


def fit_html(fit: Fit | None, model: str, say: Callable[..., str]) -> str:
    """The verdict first, then the sizes it rests on."""
    if fit is None:
        return note(say("loader.not_here", model=model))
    speed = fit.tokens_per_second
    rows = [
        (say("loader.parameters"), f"{fit.num_parameters / 1e6:.0f} M"),
        (say("loader.weight_bytes", scheme=fit.scheme), _size(fit.weight_bytes)),
        (say("loader.kv_bytes", tokens=fit.context_length), _size(fit.kv_bytes)),
        (say("loader.free"), _size(fit.available_bytes)),
        (say("loader.at_most"), "–" if speed is None else f"{speed:.0f}"),
    ]
    whole = max(fit.available_bytes, fit.weight_bytes + fit.kv_bytes)
    taken = bar([(fit.weight_bytes / whole, "blue"), (fit.kv_bytes / whole, "orange")])
    legend = f'<div class="dl-quiet dl-small">{escape(say("loader.legend"))}</div>'
    return note(say(f"loader.{fit.verdict}"), _KINDS[fit.verdict]) + facts(rows) + taken + legend


def progress_html(what: str, done: int, total: int) -> str:
    """A bar with its words; an unknown total has no bar."""
    if not total:
        return note(what)
    return f"{note(f'{what} · {done / total:.0%}')}{bar([(done / total, 'blue')])}"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
