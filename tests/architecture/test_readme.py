from __future__ import annotations

import re

from tests.architecture.source_tree import ROOT

ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README_CN.md").read_text(encoding="utf-8")


def code_blocks(text: str) -> list[str]:
    return re.findall(r"```.*?```", text, re.DOTALL)


def figures(text: str) -> list[list[str]]:
    """Cells of the table's rows, its heading and rule left out."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]


def test_both_readmes_give_the_same_commands() -> None:
    assert code_blocks(CHINESE) == code_blocks(ENGLISH)
    assert len(code_blocks(ENGLISH)) >= 4


def test_both_readmes_give_the_same_figures() -> None:
    assert figures(CHINESE) == figures(ENGLISH)
    assert figures(ENGLISH)


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


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert set(re.findall(r"`?make ([a-z-]+)", ENGLISH)) <= targets
