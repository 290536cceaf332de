from __future__ import annotations

import re
import sys

import pytest

from tests.architecture.source_tree import ROOT
from tests.architecture.test_boundaries import HEAVY

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomllib", reason="tomllib came with Python 3.11")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_readme_names_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))

    assert {"quickstart", "test"} <= named
    assert named <= targets


def test_the_readme_names_commands_that_exist() -> None:
    from typer.main import get_command

    from dashinfer_lab.cli.app import build

    known = set(get_command(build()).commands)  # type: ignore[attr-defined]  # a group
    named = set(re.findall(r"^dashinfer-lab ([a-z]+)", README, flags=re.MULTILINE))

    assert named <= known


def test_the_readme_installs_an_extra_that_exists() -> None:
    extras = set(PROJECT["project"]["optional-dependencies"])

    assert set(re.findall(r"'\.\[([a-z]+)\]'", README)) <= extras


def test_the_conda_environment_takes_its_packages_from_the_project() -> None:
    environment = (ROOT / "environment.yml").read_text(encoding="utf-8")

    assert "- --editable .[lab]" in environment
    assert f"- python{PROJECT['project']['requires-python']}" in environment


def test_every_lint_exception_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("ignore = [")[2].partition("[tool.ruff.lint.pydocstyle]")[0]
    exceptions = re.findall(r'^.*"[A-Z]+[0-9]+".*$', section, flags=re.MULTILINE)

    assert exceptions
    assert [line for line in exceptions if "#" not in line] == []


def test_ruff_bans_the_same_heavy_packages() -> None:
    tidy = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]

    assert set(tidy["banned-module-level-imports"]) == HEAVY
