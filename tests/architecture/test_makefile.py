from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WITH_MODEL = ("quickstart", "pull", "show", "run", "chat", "demo", "profile", "bench")
MODEL = "some dir/it's $HOME"
PROMPT = 'she said "hi", $(date)'


def make(*arguments: str) -> str:
    """Run make in the sources and return what it wrote on stdout."""
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment whose command line prints its arguments, one a line, and does nothing."""
    program = tmp_path / "bin" / "dashinfer-lab"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    (program.parent / "python").touch()
    for extra in ("core", "demo"):
        (tmp_path / f".installed-{extra}").touch()
    return tmp_path


@pytest.mark.parametrize("target", WITH_MODEL)
def test_a_target_takes_any_model(target: str, environment: Path) -> None:
    said = make(target, f"VENV={environment}", f"MODEL={MODEL}".replace("$", "$$"))

    assert said.splitlines()[0] == target
    assert MODEL in said.splitlines()


@pytest.mark.parametrize("target", WITH_MODEL)
@pytest.mark.parametrize(
    ("model", "needs_client"),
    [
        ("owner/name", True),
        ("smollm2-135m", False),
        ("hf:owner/name", False),
        ("./owner/name", False),
        ("/owner/name", False),
        ("tests/architecture", False),
        ("owner/a name", False),
    ],
)
def test_an_id_of_modelscope_brings_its_client(
    target: str, model: str, needs_client: bool, environment: Path
) -> None:
    told = make("--dry-run", target, f"VENV={environment}", f"MODEL={model}")

    assert ("'.[hub]'" in told) is needs_client


def test_run_takes_any_prompt(environment: Path) -> None:
    said = make("run", f"VENV={environment}", f"PROMPT={PROMPT}".replace("$", "$$"))

    assert said.splitlines() == ["run", "smollm2-135m", PROMPT]


def test_no_target_that_loads_a_model_leaves_out_which() -> None:
    recipes = re.findall(r"^\t@?\$\(BIN\)/dashinfer-lab (.*)$", MAKEFILE, flags=re.MULTILINE)

    assert len(recipes) >= len(WITH_MODEL)
    fixed = [recipe for recipe in recipes if '"$$MODEL"' not in recipe]
    assert set(fixed) == {"pull smollm2-135m"}  # what the tests themselves need


def test_help_lists_every_target_and_says_which_take_a_model() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
    listed, _, variables = make("help").partition("\n\n")
    taking = variables.partition("take:")[0]

    assert {line.split()[0] for line in listed.splitlines()} == targets
    assert set(re.findall(r"[a-z]+", taking.partition("what ")[2])) - {"and"} == set(WITH_MODEL)
