"""The quickstart with a model of one's own, and the commands it ends with."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from dashinfer_lab.cli.app import build
from dashinfer_lab.cli.next_steps import command_name, next_steps
from tests.cli.conftest import Shell


def _commands(said: str) -> list[list[str]]:
    """Words of each command, as a shell reads them; what it does stands after three spaces."""
    return [shlex.split(line.strip().partition("   ")[0]) for line in said.splitlines()[1:]]


def test_every_next_step_is_a_command_for_this_model() -> None:
    known = set(get_command(build()).commands)  # type: ignore[attr-defined]  # a group
    commands = _commands(next_steps("my models/it's", ".venv/bin/dashinfer-lab"))

    assert {words[0] for words in commands} == {".venv/bin/dashinfer-lab"}
    assert {words[1] for words in commands} <= known
    assert all(words[2:3] in (["my models/it's"], []) for words in commands)


def test_the_program_is_named_as_this_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "dashinfer-lab"
    program.parent.mkdir()
    program.touch()
    program.chmod(0o755)

    monkeypatch.setenv("PATH", str(program.parent))
    assert command_name(str(program)) == "dashinfer-lab"
    monkeypatch.setenv("PATH", "/nowhere")
    assert command_name(str(program)) == str(program)


def test_a_module_is_named_with_its_interpreter() -> None:
    assert command_name("/some/where/__main__.py").endswith(" -m dashinfer_lab")


@pytest.mark.model
def test_quickstart_takes_a_converted_model(
    embedded_gguf: Path, shell: Shell, tmp_path: Path
) -> None:
    target = tmp_path / "my model"
    shell("convert", str(embedded_gguf), str(target))
    ended = shell("--lang", "zh", "quickstart", "--model", str(target), "--max-tokens", "2")
    answer = json.loads(
        shell("quickstart", "--model", str(target), "--max-tokens", "2", "--json").out
    )

    assert ended.code == 0
    assert "已是转换后的模型" in ended.err
    assert "内置模型" not in ended.out
    assert f"'{target}'" in ended.out
    assert answer["model"] == str(target)
