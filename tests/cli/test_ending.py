from __future__ import annotations

import importlib.abc
import json
import subprocess
import sys
from pathlib import Path

import pytest

import dashinfer_lab
import dashinfer_lab.cli
from dashinfer_lab.cli import main
from dashinfer_lab.errors import CheckpointError
from jit_kernels.errors import IsaError
from tests.cli.conftest import FakeLLM, Shell

ERRORS = [
    CheckpointError("model.safetensors is\n  truncated: fetch it again"),
    IsaError("unknown instruction set"),
    OSError(28, "No space left on device"),
    MemoryError(),
]

COMMANDS = "info quickstart pull convert run chat bench profile show models list rm cache".split()


def _raise(error: BaseException) -> object:
    raise error


@pytest.fixture
def failing(
    made: list[FakeLLM], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Exception:
    monkeypatch.setattr(dashinfer_lab, "LLM", lambda *_, **__: _raise(request.param))
    return request.param


each_error = pytest.mark.parametrize(
    "failing", ERRORS, indirect=True, ids=lambda error: type(error).__name__
)


@each_error
def test_an_error_is_one_line_on_stderr(failing: Exception, shell: Shell) -> None:
    ended = shell("run", "m", "Hi")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


@each_error
def test_an_error_as_json_is_one_object_on_stdout(failing: Exception, shell: Shell) -> None:
    ended = shell("run", "m", "Hi", "--json")

    error = json.loads(ended.out)["error"]
    assert ended.code == 1
    assert error["type"] == type(failing).__name__
    assert error["message"]


def test_a_bug_keeps_its_traceback(made: list[FakeLLM], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashinfer_lab, "LLM", lambda *_, **__: _raise(ZeroDivisionError()))

    with pytest.raises(ZeroDivisionError):
        main(["run", "m", "Hi"])


def test_wrong_usage_exits_with_two_and_says_what_is_wrong(shell: Shell) -> None:
    ended = shell("run", "m", "Hi", "--max-tokens", "many")

    assert ended.code == 2
    assert ended.out == ""
    assert "--max-tokens" in ended.err


def test_wrong_usage_as_json_is_one_object_too(shell: Shell) -> None:
    ended = shell("run", "--json")

    assert ended.code == 2
    assert "MODEL" in json.loads(ended.out)["error"]["message"]


def test_an_interrupt_exits_with_130(
    made: list[FakeLLM], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeLLM, "stream", lambda *_: _raise(KeyboardInterrupt()))

    ended = shell("run", "m", "Hi")

    assert ended.code == 130
    assert "interrupted" in ended.err
    assert made[0].closed


def test_an_interrupt_while_the_commands_are_loaded_exits_with_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "dashinfer_lab.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "dashinfer_lab.cli.app", raising=False)
    monkeypatch.delattr(dashinfer_lab.cli, "app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])

    assert main(["info"]) == 130


def test_an_error_is_told_though_stdout_is_full() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dashinfer_lab", "pull", "no such model", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "no such model" in done.stderr


def test_no_command_shows_them_all(shell: Shell) -> None:
    ended = shell()

    assert ended.code == 0
    for command in COMMANDS:
        assert command in ended.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, shell: Shell) -> None:
    ended = shell(command, "--help")

    assert ended.code == 0
    assert "--json" in ended.out


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dashinfer_lab", "--help"], capture_output=True, text=True
    )

    assert done.returncode == 0
    assert "quickstart" in done.stdout


def test_what_is_converted_already_is_not_converted_again(shell: Shell, tmp_path: Path) -> None:
    for name in ("model.dimodel", "model.ditensors"):
        (tmp_path / name).touch()
    ended = shell("convert", str(tmp_path), str(tmp_path / "out"), "--json")

    assert ended.code == 1
    assert "is converted already" in json.loads(ended.out)["error"]["message"]
