from __future__ import annotations

import html
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashinfer_lab.demo.literal import JOINER, literal, plain


class _Seen(HTMLParser):
    """What a parser takes for more than text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.markup: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.markup.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.markup.append(tag)

    def handle_comment(self, data: str) -> None:
        self.markup.append(data)

    def handle_decl(self, decl: str) -> None:
        self.markup.append(decl)

    def handle_pi(self, data: str) -> None:
        self.markup.append(data)

    def handle_entityref(self, name: str) -> None:
        self.markup.append(name)

    def handle_charref(self, name: str) -> None:
        self.markup.append(name)


def _markup(text: str) -> list[str]:
    parser = _Seen()
    parser.feed(text)
    parser.close()
    return parser.markup


@pytest.mark.parametrize(
    "text",
    [
        "<b>bold</b>",
        '<img src="x" onerror="alert(1)">',
        "<SCRIPT>alert(1)</SCRIPT>",
        "<!-- hidden -->",
        "<!DOCTYPE html>",
        "<?php ?>",
        "&lt;b&gt; &copy &#65; &#x41;",
        "<<b>>",
    ],
)
def test_html_becomes_text(text: str) -> None:
    assert _markup(text) != []
    assert _markup(literal(text)) == []


@given(st.text("<>&/!?#;abZ x`[]()\n", max_size=40))
def test_no_text_makes_markup_and_all_of_it_comes_back(text: str) -> None:
    shown = literal(text)

    assert _markup(shown) == []
    assert html.unescape(shown) == shown
    assert plain(shown) == text


@pytest.mark.parametrize(
    "text", ["![a](http://h/x.png)", "![a][b]", "[a]: http://h/x.png", "[a](http://h)"]
)
def test_images_and_links_lose_the_marks_that_make_them(text: str) -> None:
    shown = literal(text)

    assert not any(mark in shown for mark in ("![", "](", "][", "]:"))
    assert plain(shown) == text


def test_a_diagram_is_a_block_of_code() -> None:
    assert "```mermaid" not in literal("```mermaid\ngraph TD\n```")
    assert "``` mermaid" not in literal("``` mermaid\ngraph TD\n```")


@pytest.mark.parametrize("text", ["1 < 2 && 3 > 2", "**bold** and `code`", "- 你好 🙂", ""])
def test_other_text_is_left_alone(text: str) -> None:
    assert literal(text) == text
    assert JOINER not in literal(text)
