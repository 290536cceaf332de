"""A profile as one HTML file: its tables and pictures, nothing fetched, no script."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

from dashinfer_lab.config import Language
from dashinfer_lab.profiling.html import fragment
from dashinfer_lab.profiling.picture import can_draw
from dashinfer_lab.profiling.words import say, spoken

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile
    from dashinfer_lab.profiling.plots import PlotKind

__all__ = ["page"]

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{margin:2rem auto;max-width:72rem;padding:0 1rem;"
    "font:14px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}"
    "figure{margin:1.5rem 0}img{max-width:100%;border-radius:8px}figcaption{opacity:.7}"
)


def page(profile: OpProfile, lang: Language | None = None) -> str:
    """The whole document; its pictures follow the reader's light or dark theme."""
    language = spoken(lang)
    machine = profile.machine
    name = "dashinfer_lab" if machine is None else machine.model
    title = escape(say(language, "title", model=name))
    figures = "".join(_figures(profile, language)) if can_draw() and profile.steps else ""
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"{fragment(profile, language)}{figures}</body></html>\n"
    )


def _figures(profile: OpProfile, lang: Language) -> list[str]:
    kinds: list[PlotKind] = ["roofline", "operators", "timeline", "requests"]
    if profile.memory is not None:
        kinds.append("memory")
    return [_figure(profile, kind, lang) for kind in kinds]


def _figure(profile: OpProfile, kind: PlotKind, lang: Language) -> str:
    light, dark = (
        f"data:image/png;base64,{b64encode(picture.png).decode()}"
        for picture in (profile.plot(kind, lang, "light"), profile.plot(kind, lang, "dark"))
    )
    caption = escape(say(lang, f"caption.{kind}"))
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{caption}"></picture><figcaption>{caption}</figcaption></figure>'
    )
