from __future__ import annotations

import inspect
import io
import json
from collections.abc import Iterator
from string import Formatter
from typing import Any

import pytest
from typer.main import get_command

from dashinfer_lab import __version__, errors
from dashinfer_lab.cache import KINDS
from dashinfer_lab.cli.app import build
from dashinfer_lab.cli.help_words import CHINESE_HELP
from dashinfer_lab.cli.messages import SENTENCES, choose_language, error_text
from dashinfer_lab.cli.width import padded, width, wrapped
from dashinfer_lab.config import default_language
from dashinfer_lab.diagnostics import diagnose
from tests.cli.conftest import FakeLLM, Shell, Typed

ERRORS = sorted(name for name, _ in inspect.getmembers(errors, inspect.isclass))


def _placeholders(sentence: str) -> set[str]:
    return {f"{name}:{form}" for _, name, form, _ in Formatter().parse(sentence) if name}


@pytest.mark.parametrize("key", SENTENCES)
def test_both_languages_say_the_same(key: str) -> None:
    sentence = SENTENCES[key]

    assert all(sentence)
    assert _placeholders(sentence.zh) == _placeholders(sentence.en)


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_a_chinese_heading(name: str) -> None:
    choose_language("zh")
    heading, detail = error_text(getattr(errors, name)("x {0}"), "x {0}").splitlines()
    choose_language("en")

    assert f"error.{name}" in SENTENCES
    assert heading.startswith("错误：")
    assert detail == "x {0}"
    has_way_out = name not in ("DashInferLabError", "EngineError")  # they are kinds of others
    assert ("。请" in heading) is has_way_out


def test_every_fact_and_kind_has_its_name() -> None:
    facts = {f"info.{topic}.{name}" for topic, found in diagnose().items() for name in found}
    named = {fact for fact in facts if not fact.startswith("info.versions.")}

    assert named | {f"cache.{kind}" for kind in KINDS} <= set(SENTENCES)
    assert all(SENTENCES[f"cache.{kind}"].en == holds for kind, holds in KINDS.items())


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),
        ({"LANG": "de_DE"}, "en"),
        ({}, "en"),
    ],
)
def test_the_locale_decides_the_language(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert default_language() == expected


def test_an_error_in_chinese_has_a_heading_and_the_detail(
    made: list[FakeLLM], shell: Shell
) -> None:
    ended = shell("--lang", "zh", "run", "m", "Hi", "--top-p", "1.5")

    heading, detail = ended.err.splitlines()
    assert ended.code == 1
    assert heading == "错误：请求被拒绝，其他请求不受影响。请按下面的说明修改请求"
    assert detail == "top_p=1.5 无效：应为大于 0 且不超过 1 的数（1 为关闭）"


def test_the_option_wins_over_the_locale(
    made: list[FakeLLM], shell: Shell, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")

    said = []
    for options in ([], ["--lang", "en"]):
        typed(io.StringIO("Hi\n"))
        said.append(shell(*options, "chat", "m").err)

    assert "词元" in said[0]
    assert "tokens/s" in said[1]


def test_json_is_the_same_in_both_languages(shell: Shell) -> None:
    english, chinese = (shell("--lang", lang, "models", "--json").out for lang in ("en", "zh"))

    assert json.loads(chinese) == json.loads(english)


def test_an_unknown_language_is_wrong_usage(shell: Shell) -> None:
    ended = shell("--lang", "tlh", "models")

    assert ended.code == 2
    assert "tlh" in ended.err


def test_the_version_is_told(shell: Shell) -> None:
    ended = shell("--version")

    assert (ended.code, ended.out) == (0, f"dashinfer-lab {__version__}\n")


def test_columns_of_chinese_text_are_aligned() -> None:
    assert width("解码a") == 5
    assert padded("解码", 6) + "|" == "解码  |"
    assert padded("解码", 6, right=True) == "  解码"


def help_texts(command: Any) -> Iterator[str]:
    """Every help text of a command and those below it, each shown to a person."""
    yield command.help
    for parameter in command.params:
        yield from [parameter.help] if getattr(parameter, "help", None) else []
    for below in getattr(command, "commands", {}).values():
        yield from help_texts(below)


def test_every_help_text_has_its_chinese_and_no_more_is_there() -> None:
    told = set(help_texts(get_command(build()))) | {"Show this message and exit."}

    assert told == set(CHINESE_HELP)
    assert all(
        any("\u4e00" <= it <= "\u9fff" for it in chinese) for chinese in CHINESE_HELP.values()
    )


@pytest.mark.parametrize(
    ("arguments", "locale"),
    [(["--help"], "zh_CN.UTF-8"), (["--lang", "zh", "--help"], "en_US.UTF-8"),
     (["--lang=zh", "bench", "--help"], "C"), (["chat", "--help"], "zh_TW.UTF-8")],
    ids=["locale", "option", "option with a value", "another locale"],
)  # fmt: skip
def test_help_in_chinese_keeps_no_english_sentence(
    arguments: list[str], locale: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    ended = shell(*arguments)
    shown = " ".join(ended.out.split())

    assert ended.code == 0
    assert "\u9009\u9879" in shown
    assert not [text for text in CHINESE_HELP if text in shown]
    assert max(map(width, ended.out.splitlines())) <= 80


def test_every_word_of_the_help_is_shown(shell: Shell) -> None:
    shown = "".join(shell("--lang", "zh", "chat", "--help").out.split())
    for option in get_command(build()).commands["chat"].params:
        assert "".join(CHINESE_HELP[option.help].split()) in shown


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_help_of_cache_names_every_kind(language: str, shell: Shell) -> None:
    shown = shell("--lang", language, "cache", "--help").out

    assert [kind for kind in KINDS if kind not in shown] == []


def test_lines_break_within_chinese_text_and_before_words() -> None:
    assert wrapped("\u89e3\u7801 a16w8 \u9884\u586b\u5145\u3002", 7) == [
        "\u89e3\u7801", "a16w8", "\u9884\u586b", "\u5145\u3002",
    ]  # fmt: skip
    assert wrapped("", 8) == []


def test_wrong_usage_is_said_in_chinese(shell: Shell) -> None:
    ended = shell("--lang", "zh", "run")

    assert ended.code == 2
    assert ended.err.startswith("\u9519\u8bef\uff1a\u547d\u4ee4\u7528\u6cd5\u4e0d\u5bf9")
    assert "MODEL" in ended.err
    assert "\u9519\u8bef" not in shell("--lang", "en", "run").err


@pytest.mark.parametrize("command", [("info",), ("list",), ("cache",), ("models",)])
def test_the_names_in_chinese_are_chinese(command: tuple[str, ...], shell: Shell) -> None:
    ended = shell("--lang", "zh", *command)

    assert ended.code == 0
    assert any("\u4e00" <= character <= "\u9fff" for character in ended.out + ended.err)
