"""Tables and pictures of a profile by kind, as HTML with captions in the reader's language."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING, Final, cast

from dashinfer_lab.config import Language
from dashinfer_lab.profiling import OpProfile, ProfileComparison
from dashinfer_lab.profiling.html import comparison_fragment, fragment
from dashinfer_lab.profiling.picture import can_draw
from dashinfer_lab.profiling.words import say as say_profile
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.words import say

if TYPE_CHECKING:
    from dashinfer_lab.profiling.picture import Picture
    from dashinfer_lab.profiling.plots import PlotKind

__all__ = ["KINDS", "available_kinds", "profile_html"]

KINDS: Final = (
    "table",
    "operators",
    "roofline",
    "timeline",
    "requests",
    "memory",
    "comparison",
)


def available_kinds(profile: OpProfile | None, before: OpProfile | None) -> list[str]:
    """Those that have something to show: pictures need matplotlib and a step."""
    if profile is None:
        return []
    absent = {"comparison"} if before is None else set[str]()
    if profile.memory is None:
        absent.add("memory")
    if not (can_draw() and profile.steps):
        return [kind for kind in ("table", "comparison") if kind not in absent]
    return [kind for kind in KINDS if kind not in absent]


def profile_html(
    profile: OpProfile | None, before: OpProfile | None, kind: str, lang: Language
) -> str:
    """One kind; where it has nothing to show, why."""
    if profile is None:
        return note(say(lang, "profile.none"))
    if kind == "table":
        return fragment(profile, lang)
    if kind not in available_kinds(profile, before):
        return note(say(lang, f"profile.no_{kind if kind in ('comparison', 'memory') else 'plot'}"))
    if kind == "comparison" and before is not None:
        found = ProfileComparison.of(before, profile)
        drawn = _figure(found.plot(lang), kind, lang) if can_draw() else ""
        return comparison_fragment(found, lang) + drawn
    return _figure(profile.plot(cast("PlotKind", kind), lang), kind, lang)


def _figure(picture: Picture, kind: str, lang: Language) -> str:
    caption = escape(say_profile(lang, f"caption.{kind}"))
    data = b64encode(picture.png).decode()
    return (
        f'<figure style="margin:6px 0"><img src="data:image/png;base64,{data}" alt="{caption}">'
        f'<figcaption class="dl-quiet dl-small">{caption}</figcaption></figure>'
    )
