"""Every warning of the log has its Chinese, and the locale or the command line chooses."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashinfer_lab.log_words import CHINESE, log_in, translate_log
from jit_kernels.runtime.contention import Contention

ROOT = Path(__file__).parents[1]
BUSY = "jit_kernels.runtime.contention"


def warned(path: Path) -> Iterator[str]:
    """The words of every warning that a file gives to its logger."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, words = ast.unparse(node.func.value), node.args[:1]
            kinds = ("warning", "error", "exception", "critical")
            if owner.lower() == "_log" and node.func.attr in kinds and words:
                yield ast.literal_eval(words[0])


def test_every_warning_has_its_chinese_with_the_same_placeholders() -> None:
    paths = [it for name in ("dashinfer_lab", "jit_kernels") for it in (ROOT / name).rglob("*.py")]
    told = {words for path in paths for words in warned(path)}

    assert told == {words for sentences in CHINESE.values() for words in sentences}
    for sentences in CHINESE.values():
        for english, chinese in sentences.items():
            assert re.findall("%[a-z]", english) == re.findall("%[a-z]", chinese)


def busy(caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    Contention.told = False
    contention = Contention(4)
    with caplog.at_level(logging.WARNING):
        contention.begin(1.0)
        contention.observe(90, 100, 1.2)
    return caplog.messages[0]


def test_the_locale_or_the_choice_decides(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    english = "other programs keep the processors busy: 2 of 4 threads"
    translate_log()
    translate_log()
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    assert busy(caplog).startswith(english)

    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert "\u4f7f\u7528 2 / 4 \u4e2a\u7ebf\u7a0b" in busy(caplog)

    try:
        log_in("en")
        assert busy(caplog).startswith(english)
    finally:
        log_in(None)
