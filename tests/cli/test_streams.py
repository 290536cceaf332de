"""Standard streams that are closed, full, or cannot hold a letter; names that a terminal obeys."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from dashinfer_lab.cli import main
from tests.cli.conftest import FakeLLM, Shell
from tests.hub.tiny_models import write_safetensors

PROGRAM = [sys.executable, "-m", "dashinfer_lab"]


def test_a_chat_without_stdin_ends_at_once(
    made: list[FakeLLM], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    ended = shell("chat", "m", "--json")
    sys.stdin.close()

    assert (ended.code, json.loads(ended.out)["turns"]) == (0, [])
    assert made[0].closed


def test_without_stderr_remarks_do_not_go_to_stdout(
    made: list[FakeLLM], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    code = main(["run", "m", "Hi"])
    sys.stderr.close()

    assert (code, capsys.readouterr().out) == (0, " Paris, a city\n")


def test_without_stdout_nothing_is_begun(
    made: list[FakeLLM], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    assert main(["run", "m", "Hi"]) == 1
    assert "stdout is closed" in capsys.readouterr().err
    assert made == []


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    with subprocess.Popen(
        [*PROGRAM, "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        _, said = running.communicate()

    assert (running.returncode, said) == (1, "")


def test_a_full_stderr_ends_no_work(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "list", "--json"],
            env={**os.environ, "DASHINFER_LAB_CACHE": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
        )

    assert (done.returncode, json.loads(done.stdout)) == (0, {"models": []})


@pytest.mark.parametrize("encoding", ["ascii", "gb2312"])
def test_json_says_all_in_any_encoding(encoding: str) -> None:
    name = "no 模型 \N{FOX FACE}"
    done = subprocess.run(
        [*PROGRAM, "show", name, "--json"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )

    assert name in json.loads(done.stdout.decode(encoding))["error"]["message"]


def test_control_characters_in_names_are_shown_not_obeyed(shell: Shell, tmp_path: Path) -> None:
    name = "ti\x1b[31mny\x07"
    write_safetensors(tmp_path / name)
    (tmp_path / name / "README.md").write_text("---\nlicense: mit\n---\n")

    said = [shell("show", str(tmp_path / name)).out, shell("show", f"no{name}").err]

    for text in said:
        assert "\x1b" not in text
        assert "\\x1b[31mny\\x07" in text


def warned_of(words: list[str]) -> Iterator[str]:
    yield words[0]
    logging.getLogger("jit_kernels.example").warning("%s busy", "kept")
    yield from words[1:]


def test_a_warning_of_the_log_waits_for_the_end_of_the_line_that_streams(
    made: list[FakeLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeLLM, "stream", lambda *_: warned_of([" Paris", ", a city"]))
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main(["run", "m", "Hi"])

    assert (code, said.getvalue()[-25:]) == (0, " Paris, a city\nkept busy\n")
