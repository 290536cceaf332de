from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling import Machine, OpProfile
from dashinfer_lab.profiling.picture import Picture
from dashinfer_lab.profiling.plots import KINDS
from dashinfer_lab.profiling.words import WORDS

pytest.importorskip("matplotlib")

# Together they hold every other kind.
WHOLE = ("overview", "timeline", "memory")
CHINESE_FAMILY = "Noto Sans CJK SC"


def texts(picture: Picture) -> str:
    """Everything that is written in a picture."""
    from matplotlib.text import Text

    found: list[Any] = picture.figure.findobj(Text)
    return "\n".join(text.get_text() for text in found)


def is_chinese(text: str) -> bool:
    return any(ord(char) >= 0x2E80 for char in text)


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.fixture
def without_chinese_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.font_manager import fontManager

    latin = [entry for entry in fontManager.ttflist if entry.name.startswith("DejaVu")]
    monkeypatch.setattr(fontManager, "ttflist", latin)


@pytest.fixture
def chinese_font(without_chinese_fonts: None, tmp_path: Path) -> None:
    """A font of blank glyphs for every character we use, under a known family's name."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen
    from matplotlib import font_manager

    codes = {ord(char) for _, chinese in WORDS.values() for char in chinese}
    names = {code: f"u{code:04X}" for code in sorted(codes)}
    order = [".notdef", *names.values()]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap(names)
    blank = TTGlyphPen(None).glyph()
    builder.setupGlyf(dict.fromkeys(order, blank))
    builder.setupHorizontalMetrics(dict.fromkeys(order, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": CHINESE_FAMILY, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    path = tmp_path / "blank.ttf"
    builder.save(path)
    font_manager.fontManager.addfont(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "theme"), [*((kind, "light") for kind in KINDS), *((kind, "dark") for kind in WHOLE)]
)
def test_every_kind_is_drawn_in_both_themes(batch: OpProfile, kind: Any, theme: Any) -> None:
    picture = batch.plot(kind, "en", theme)

    width, height = size(picture.png)
    assert width > height > 300
    corner = picture.figure.get_facecolor()
    assert (sum(corner[:3]) > 2) == (theme == "light")


# Warnings are errors in these tests, and a missing glyph is one.
@pytest.mark.usefixtures("without_chinese_fonts")
@pytest.mark.parametrize("kind", WHOLE)
def test_without_a_chinese_font_pictures_are_english(batch: OpProfile, kind: Any) -> None:
    picture = batch.plot(kind, "zh")

    assert picture.lang == "en"
    assert not is_chinese(texts(picture))


@pytest.mark.slow
@pytest.mark.usefixtures("chinese_font")
@pytest.mark.parametrize("kind", WHOLE)
def test_with_a_chinese_font_pictures_are_chinese(batch: OpProfile, kind: Any) -> None:
    picture = batch.plot(kind, "zh")

    assert picture.lang == "zh"
    assert is_chinese(texts(picture))
    assert not is_chinese(texts(batch.plot(kind, "en")))


@pytest.mark.usefixtures("without_chinese_fonts")
def test_a_name_that_no_font_can_show_has_question_marks(batch: OpProfile) -> None:
    profile = replace(batch, machine=Machine("通义 $x$ 7B", "fp32", "avx2", 1))

    written = texts(profile.plot("overview", "en"))

    assert "?? $x$ 7B, fp32, avx2, 1 thread" in written


def test_the_roofline_names_both_roofs_and_what_took_time(batch: OpProfile) -> None:
    written = texts(batch.plot("roofline", "en"))

    assert "read 20.0 GB/s" in written
    assert "fp32 FMA 100 GFLOP/s" in written
    assert "linear_u8" in written


def test_a_roofline_without_a_roof_shows_the_operators_alone(batch: OpProfile) -> None:
    written = texts(replace(batch, roof=None).plot("roofline", "en"))

    assert "GB/s" not in written
    assert "linear_u8" in written


def test_points_lie_where_the_figures_are(batch: OpProfile) -> None:
    (axes,) = batch.plot("roofline", "en").figure.axes
    drawn = {
        (float(x), float(y))
        for points in axes.collections
        for x, y in points.get_offsets().tolist()
    }

    costly = batch.decode.achieved_by_operator()[0]
    assert (costly.intensity, costly.gflops) in drawn
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_picture_is_saved_and_shown(batch: OpProfile, tmp_path: Path) -> None:
    picture = batch.plot("requests", "en")

    assert picture.save(tmp_path / "r.png").read_bytes() == picture.png == picture._repr_png_()
    assert repr(picture) == f"<Picture of 8.2 by 3.2 inches, {len(picture.png)} bytes of PNG>"
    assert batch._repr_png_() is not None


def test_without_a_memory_map_the_overview_leaves_it_out(batch: OpProfile) -> None:
    profile = replace(batch, memory=None)

    assert "KV pages" not in texts(profile.plot("overview", "en"))
    with pytest.raises(ConfigError, match="no memory map"):
        profile.plot("memory", "en")


def test_an_unknown_kind_or_theme_is_refused(batch: OpProfile) -> None:
    with pytest.raises(ConfigError, match="there is no plot 'pie'"):
        batch.plot("pie")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="theme='pink'"):
        batch.plot(theme="pink")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="nothing to draw"):
        replace(batch, steps=()).plot()


def test_without_matplotlib_there_is_no_picture_and_the_way_out_is_told(
    batch: OpProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    assert batch._repr_png_() is None
    assert batch.compare(batch)._repr_png_() is None
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        batch.save(tmp_path / "p.png")
    assert "<figure" not in batch.save(tmp_path / "p.html").read_text(encoding="utf-8")
