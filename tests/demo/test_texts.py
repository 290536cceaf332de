from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

import dashinfer_lab.demo
from dashinfer_lab.demo.texts import SENTENCES, Texts

SOURCES = list(Path(dashinfer_lab.demo.__file__).parent.glob("*.py"))
SOURCES = [path for path in SOURCES if path.name != "texts.py"]


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("key", SENTENCES)
def test_both_languages_take_the_same_values(key: str) -> None:
    english, chinese = SENTENCES[key]

    assert _placeholders(english) == _placeholders(chinese)


def test_chinese_sentences_are_chinese() -> None:
    same = {key for key, (english, chinese) in SENTENCES.items() if english == chinese}

    assert same == {"page.title", "sampling.top_p", "profile.default"}


def test_every_sentence_is_said_somewhere_and_every_said_one_exists() -> None:
    literals = {
        node.value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    topics = {key.partition(".")[0] for key in SENTENCES}
    said = {text for text in literals if text.partition(".")[0] in topics and text in SENTENCES}
    composed = {f"compare.{each}" for each in ("same", "differ", "apart", "left", "right")}

    assert said | composed == set(SENTENCES)


def test_a_sentence_is_filled_in_the_language_asked_for() -> None:
    assert Texts("en")("answer.tokens", count=3) == "3 tokens"
    assert Texts("zh")("answer.tokens", count=3) == "3 个词元"


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(KeyError, match="no.such"):
        Texts("en")("no.such")
