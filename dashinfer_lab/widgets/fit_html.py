"""Whether a model fits, and how far its loading is, as HTML."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Final

from dashinfer_lab.widgets.fit import Fit, Verdict
from dashinfer_lab.widgets.theme import bar, facts, note
from dashinfer_lab.widgets.words import say

if TYPE_CHECKING:
    from dashinfer_lab.config import Language
    from dashinfer_lab.convert import ConversionProgress
    from dashinfer_lab.progress import LoadProgress

__all__ = ["fit_html", "reporting"]

_KINDS: Final[dict[Verdict, str]] = {"fits": "good", "tight": "warn", "too_large": "bad"}


def fit_html(fit: Fit | None, model: str, lang: Language) -> str:
    """The verdict first, then the sizes it rests on."""
    if fit is None:
        return note(say(lang, "loader.not_here", model=model))
    speed = fit.tokens_per_second
    rows = [
        (say(lang, "loader.parameters"), f"{fit.num_parameters / 1e6:.0f} M"),
        (say(lang, "loader.weight_bytes", scheme=fit.scheme), _size(fit.weight_bytes)),
        (
            say(lang, "loader.kv_bytes", tokens=fit.context_length, kind=fit.kv_format),
            _size(fit.kv_bytes),
        ),
        (say(lang, "loader.free"), _size(fit.available_bytes)),
    ]
    if speed is not None:
        rows.append((say(lang, "loader.at_most"), f"{speed:.0f}"))
    whole = max(fit.available_bytes, fit.weight_bytes + fit.kv_bytes)
    taken = bar([(fit.weight_bytes / whole, "blue"), (fit.kv_bytes / whole, "orange")])
    legend = f'<div class="dl-quiet dl-small">{escape(say(lang, "loader.legend"))}</div>'
    return (
        note(say(lang, f"loader.{fit.verdict}"), _KINDS[fit.verdict]) + facts(rows) + taken + legend
    )


def reporting(show: Callable[[str], None], lang: Language) -> LoadProgress:
    """Whom a load tells how far it is: `show` is given the bar each time."""
    from dashinfer_lab.progress import LoadProgress, conversion_pace

    def fetched(what: str, done: int, total: int) -> None:
        show(_progress(what, done, total))

    def converted(progress: ConversionProgress) -> None:
        pace = f"{say(lang, 'loader.converting')} · {conversion_pace(progress, lang)}"
        show(_progress(pace, progress.done, progress.total))

    return LoadProgress(fetched, converted)


def _progress(what: str, done: int, total: int) -> str:
    """A bar with its words; an unknown total has no bar."""
    if not total:
        return note(what)
    return f"{note(f'{what} · {done / total:.0%}')}{bar([(done / total, 'blue')])}"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
