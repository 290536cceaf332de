"""What every command that loads a model tells on the way: bars, and why the weights are so."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr
from typing import Any

import pytest

import dashinfer_lab
from dashinfer_lab.convert import ConversionProgress
from dashinfer_lab.progress import LoadProgress, load_bars
from tests.cli.conftest import FakeLLM, Shell, Typed

REASON = "a16w8: 3.8 times fewer bytes"
CHOSEN = (
    "weights a16w8:64: the model was converted so; keys and values fp32: 10 MB for 1024 tokens "
    "(more: dashinfer-lab show m)"
)
LOADING = {"run": ("m", "Hi"), "chat": ("m",), "profile": ("m", "Hi")}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", LOADING)
def test_what_was_chosen_is_said_once_in_one_line(
    command: str, made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO("Hi\nAnd then?\n"))
    ended = shell(command, *LOADING[command])

    assert ended.err.splitlines()[0] == CHOSEN
    assert ended.err.count("keys and values") == 1
    assert "keys and values" not in ended.out


@pytest.mark.parametrize("command", LOADING)
def test_nothing_is_said_of_weights_that_were_asked_for(
    command: str, made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO(""))

    ended = shell(command, *LOADING[command], "--weights", "a16w8")

    assert ended.err.splitlines()[0].startswith("keys and values fp32: ")


@pytest.mark.parametrize("command", LOADING)
def test_keys_and_values_are_kept_as_asked_for(
    command: str, made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO(""))
    ended = shell(command, *LOADING[command], "--kv-cache-dtype", "int8")

    assert made[0].kv_cache_dtype == "int8"
    assert "keys and values" not in ended.err


@pytest.mark.parametrize("command", LOADING)
def test_json_holds_the_reason_and_stderr_does_not(
    command: str, made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO(""))
    ended = shell(command, *LOADING[command], "--json")

    assert (json.loads(ended.out)["weights_reason"], ended.err) == (REASON, "")


def _loading(*_: Any, progress: LoadProgress, **__: Any) -> FakeLLM:
    assert progress.fetch is not None
    assert progress.convert is not None
    progress.fetch("fetching lab/tiny", 5, 10)
    progress.convert(ConversionProgress("w", 3, 12, 1.5))
    return FakeLLM("m")


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_bars_go_to_the_terminal_and_never_to_stdout(
    options: tuple[str, ...],
    made: list[FakeLLM],
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashinfer_lab, "LLM", _loading)
    with redirect_stderr(Terminal()) as terminal:
        ended = shell("--lang", "zh", "run", "m", "Hi", *options)

    drawn = terminal.getvalue()
    assert "fetching lab/tiny:  50%" in drawn
    assert "转换  25% |" in drawn
    assert "每秒 2.00 · 剩余 00:05" in drawn
    assert "%" not in ended.out
    answer = json.loads(ended.out)["text"] if options else ended.out.rstrip("\n")
    assert answer == " Paris, a city"


def test_without_a_terminal_there_is_no_bar(
    made: list[FakeLLM], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashinfer_lab, "LLM", _loading)

    assert shell("run", "m", "Hi").err == f"{CHOSEN}\n"


def test_a_bar_is_gone_after_its_block() -> None:
    with redirect_stderr(Terminal()) as terminal, load_bars("en") as progress:
        assert progress.fetch is not None
        progress.fetch("fetching", 1, 2)

    assert terminal.getvalue().endswith("\r")
    assert terminal.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip() == ""
