"""Usage and help as manuals spell them."""

from __future__ import annotations

import pytest
from typer.main import get_command

from dashinfer_lab.cli.app import build
from tests.cli.conftest import Shell

COMMANDS = sorted(get_command(build()).commands)  # type: ignore[attr-defined]  # a group
USAGES = {
    "run": "run [OPTIONS] MODEL PROMPT",
    "rm": "rm [OPTIONS] NAME...",
    "models": "models [OPTIONS] [MODEL_TYPE]",
    "quickstart": "quickstart [OPTIONS] [QUESTION]",
}


@pytest.mark.parametrize("command", USAGES)
def test_arguments_stand_by_their_names(command: str, shell: Shell) -> None:
    assert f"dashinfer-lab {USAGES[command]}\n" in shell("--lang", "zh", command, "--help").out
    assert f"dashinfer-lab {USAGES[command]} " in shell("--lang", "en", command, "--help").out


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_flags_have_no_type_and_nothing_is_braced(command: str | None, shell: Shell) -> None:
    shown = shell(*([command] if command else []), "--help").out

    assert "--help " in shown
    assert [it for it in ("<bool>", "{", "}", "--no-") if it in shown] == []


def test_wrong_usage_shows_the_same_line(shell: Shell) -> None:
    ended = shell("run", "m")

    assert ended.code == 2
    assert ended.err.startswith("Usage: dashinfer-lab run [OPTIONS] MODEL PROMPT\n")
    assert "PROMPT" in ended.err.splitlines()[-1]
