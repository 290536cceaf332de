from __future__ import annotations

import inspect
import re

import pytest

from tests.architecture.source_tree import ROOT
from tests.architecture.supported_models import HEADINGS, with_tables

ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README_CN.md").read_text(encoding="utf-8")


def code_blocks(text: str) -> list[str]:
    return re.findall(r"```.*?```", text, re.DOTALL)


def figures(text: str) -> list[list[list[str]]]:
    """Cells of each table's rows, headings and rules left out."""
    tables = [found.splitlines()[2:] for found in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    return [
        [[cell.strip() for cell in row.strip("|").split("|")] for row in rows] for rows in tables
    ]


def headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]


def test_both_readmes_give_the_same_commands() -> None:
    assert code_blocks(CHINESE) == code_blocks(ENGLISH)
    assert len(code_blocks(ENGLISH)) >= 4


def test_both_readmes_give_the_same_figures() -> None:
    assert figures(CHINESE) == figures(ENGLISH)
    assert len(figures(ENGLISH)) == 4
    assert all(figures(ENGLISH))


@pytest.mark.parametrize("name", HEADINGS)
def test_the_tables_of_models_are_what_the_models_say(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    assert text == with_tables(text, HEADINGS[name]), "write it again: make readme"


def test_a_readme_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="0 marks"):
        with_tables("# README\n", HEADINGS["README.md"])


def test_both_readmes_have_the_same_chapters() -> None:
    assert headings(CHINESE) == headings(ENGLISH)
    assert "(README_CN.md)" in ENGLISH
    assert "(README.md)" in CHINESE


def test_every_command_of_the_readme_exists() -> None:
    from dashinfer_lab.cli.app import build

    known = {command.name or command.callback.__name__ for command in build().registered_commands}
    used = set(
        re.findall(r"^dashinfer-lab ([a-z]+)", "\n".join(code_blocks(ENGLISH)), re.MULTILINE)
    )
    assert used <= known


def test_every_command_but_those_named_takes_json() -> None:
    from dashinfer_lab.cli.app import build

    without = {
        command.callback.__name__
        for command in build().registered_commands
        if command.callback and "as_json" not in inspect.signature(command.callback).parameters
    }
    said = re.search(r"Every command but `(\w+)` takes `--json`", ENGLISH)
    assert said
    assert without == {said[1]}


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert set(re.findall(r"`?make ([a-z-]+)", ENGLISH)) <= targets
