from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dashinfer_lab.profiling import Machine, OpProfile
from dashinfer_lab.profiling.html import comparison_fragment, fragment
from dashinfer_lab.profiling.words import WORDS

VOID = {"meta", "img", "source"}


class Balance(HTMLParser):
    """Checks that what is opened is closed, and collects tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(html: str) -> Balance:
    found = Balance()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


def test_a_fragment_has_a_row_for_each_operator_and_no_script(batch: OpProfile) -> None:
    html = fragment(batch, "en")
    found = parsed(html)

    assert not {"script", "style", "link", "img"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    for phase in batch.phases:
        for row in phase.by_operator():
            assert f">{row.opname}</td>" in html
    assert "roof of this machine: 20.0 GB/s read, 100 GFLOP/s" in html


def test_a_fragment_takes_text_colour_and_paper_from_the_page(batch: OpProfile) -> None:
    styles = [value or "" for name, value in parsed(fragment(batch)).attributes if name == "style"]

    colours = {c for style in styles for c in re.findall(r"(?<!-)\bcolor:([^;]+)", style)}
    assert colours == {"inherit"}
    opaque = [s for s in styles if re.search(r"background:(?!none|rgba|linear-gradient)", s)]
    assert opaque == []


def test_names_are_shown_literally(batch: OpProfile) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    profile = replace(batch, machine=Machine(hostile, hostile, "avx2", 1))

    html = fragment(profile, "zh")
    assert "<img" not in html
    assert "&lt;img src=x" in html


def test_both_languages_say_the_same_things(batch: OpProfile) -> None:
    placeholders = re.compile(r"{(\w+)")
    for english, chinese in WORDS.values():
        assert set(placeholders.findall(english)) == set(placeholders.findall(chinese))
    assert "预填充：" in fragment(batch, "zh")
    assert re.search(r"\d+ 个线程<", fragment(batch, "zh"))
    compared = comparison_fragment(batch.compare(batch, ("一", "二")), "zh")
    assert ">合计<" in compared
    assert ">total<" not in compared
    assert "prefill: " in fragment(batch, "en")


def test_a_notebook_shows_the_locales_language(
    batch: OpProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")

    assert 'lang="zh"' in batch._repr_html_()
    assert str(batch) == repr(batch) == batch.report("zh")


def test_nothing_profiled_is_said(batch: OpProfile) -> None:
    empty = replace(batch, steps=())

    assert fragment(empty, "en") == "<p>no step was profiled</p>"
    assert empty.report("zh") == "没有记录到任何步骤"
    assert empty.as_dict()["requests"] == []


def test_a_page_stands_alone_with_chinese_captions(batch: OpProfile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    html = batch.save(tmp_path / "p.html", "zh").read_text(encoding="utf-8")
    found = parsed(html)

    sources = [v or "" for name, v in found.attributes if name in ("src", "srcset", "href")]
    assert len(sources) == 2 * 5
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "script" not in found.tags
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    assert captions == [WORDS[f"caption.{kind}"][1] for kind in FIGURES]


FIGURES = ("roofline", "operators", "timeline", "requests", "memory")


def test_a_comparison_is_a_table_for_each_phase(batch: OpProfile) -> None:
    html = comparison_fragment(batch.compare(batch, ("<b>", "two")), "en")
    found = parsed(html)

    assert found.tags.count("table") == 2
    assert "b" not in found.tags
    assert html.count("1.00×") >= 2
