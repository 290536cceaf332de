"""A drawn figure: its bytes for a notebook, and fonts whose glyphs are all there.

Figures are made without pyplot: no backend is chosen, and none stays open.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from dashinfer_lab.config import Language, expanded
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling.words import WORDS, spoken

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Palette", "Pen", "Picture", "Theme", "can_draw", "draw", "require_matplotlib"]

Theme = Literal["light", "dark"]
_PIXELS_PER_INCH: Final = 144
_LATIN_FONT: Final = "DejaVu Sans"  # comes with matplotlib
_FIRST_CHINESE: Final = 0x2E80  # what lies below, the Latin font has
_CHINESE_FONTS: Final = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "SimHei",
    "Noto Sans CJK JP",
)


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a theme; `series` are told apart by the commonest forms of colour blindness."""

    paper: str
    ink: str
    faint: str
    grid: str
    series: tuple[str, ...]
    quiet: str


_SERIES = ("#4477aa", "#ee8866", "#44aa77", "#aa4488", "#ccbb44", "#66ccee", "#bb5566", "#8866cc")
_PALETTES: Final[dict[Theme, Palette]] = {
    "light": Palette("#ffffff", "#1f2430", "#687080", "#e3e6ec", _SERIES, "#b8bec9"),
    "dark": Palette("#16181d", "#e8eaf0", "#9aa2b1", "#333844", _SERIES, "#596070"),
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure and its PNG; shows itself in a notebook. lang: language of its text."""

    figure: Figure
    png: bytes
    lang: Language

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"<Picture of {width:g} by {height:g} inches, {len(self.png)} bytes of PNG>"

    def save(self, path: str | Path) -> Path:
        """Write the PNG to `path`."""
        target = expanded(path)
        target.write_bytes(self.png)
        return target

    def _repr_png_(self) -> bytes:
        return self.png


@dataclass(frozen=True, slots=True)
class Pen:
    """What a drawing function needs: a figure, colours, and words that can be drawn."""

    figure: Figure
    palette: Palette
    lang: Language
    fonts: tuple[Any, ...]
    finishing: list[Callable[[], None]]

    def finally_do(self, work: Callable[[], None]) -> None:
        """Work that needs to know where the axes have come to lie."""
        self.finishing.append(work)

    def say(self, key: str, **values: object) -> str:
        """The words of `key`, with nothing in them that the font lacks."""
        english, chinese = WORDS[key]
        return self.drawable((chinese if self.lang == "zh" else english).format(**values))

    def drawable(self, text: str) -> str:
        """`text` with a question mark for each character that no font has."""
        return "".join(
            c if any(f.get_char_index(ord(c)) for f in self.fonts) else "?" for c in text
        )


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Raise `ConfigError` where pictures cannot be drawn."""
    if not can_draw():
        raise ConfigError(
            "pictures need matplotlib, which is not installed: pip install matplotlib"
        )


def draw(
    paint: Callable[[Pen], None],
    size: tuple[float, float],
    lang: Language | None = None,
    theme: Theme = "light",
) -> Picture:
    """Let `paint` fill a figure of `size` inches; Chinese only where a font for it is found.

    Raises ConfigError without matplotlib, or for an unknown theme.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties, findfont, get_font

    chinese = _chinese_font() if spoken(lang) == "zh" else None
    families = [_LATIN_FONT] if chinese is None else [chinese, _LATIN_FONT]
    if theme not in _PALETTES:
        raise ConfigError(f"theme={theme!r} is not known: it is one of {', '.join(_PALETTES)}")
    palette = _PALETTES[theme]
    with mpl.rc_context(cast(Any, _style(palette, families))):
        figure = Figure(figsize=size, layout="constrained")
        fonts = tuple(get_font(findfont(FontProperties(family=name))) for name in families)
        language: Language = "en" if chinese is None else "zh"
        pen = Pen(figure, palette, language, fonts, [])
        paint(pen)
        figure.draw_without_rendering()
        for finish in pen.finishing:
            finish()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_PIXELS_PER_INCH)
    return Picture(figure, buffer.getvalue(), language)


def _style(palette: Palette, families: Iterable[str]) -> dict[str, Any]:
    return {
        "font.family": list(families),
        "font.size": 9.0,
        "axes.titlesize": 10.5,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.edgecolor": palette.faint,
        "axes.facecolor": palette.paper,
        "axes.labelcolor": palette.faint,
        "axes.titlecolor": palette.ink,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": False,
        "figure.facecolor": palette.paper,
        "grid.color": palette.grid,
        "grid.linewidth": 0.7,
        "legend.frameon": False,
        "legend.labelcolor": palette.ink,
        "text.color": palette.ink,
        "text.parse_math": False,
        "xtick.color": palette.faint,
        "ytick.color": palette.faint,
    }


@lru_cache(maxsize=1)
def _needed() -> frozenset[int]:
    """Code points of every Chinese character that a picture may hold."""
    used = {ord(char) for _, chinese in WORDS.values() for char in chinese}
    return frozenset(code for code in used if code >= _FIRST_CHINESE)


def _chinese_font() -> str | None:
    """The first known family on this machine that has every character we use."""
    from matplotlib.font_manager import fontManager, get_font

    installed = {entry.name: entry.fname for entry in reversed(fontManager.ttflist)}
    for name in _CHINESE_FONTS:
        if name in installed:
            font = get_font(installed[name])
            if all(font.get_char_index(code) for code in _needed()):
                return name
    return None
