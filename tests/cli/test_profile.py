from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import FakeLLM, Shell

FORMS = {"trace": "json", "plot": "png", "html": "html"}


def test_profile_prints_the_report(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("profile", "m", "Hi")

    assert (ended.code, ended.out) == (0, "*** forward *** en\n")
    assert made[0].closed


def test_profile_as_json_prints_its_tables(made: list[FakeLLM], shell: Shell) -> None:
    found = json.loads(shell("profile", "m", "Hi", "--json").out)

    assert found["prompt"][0] == "Hi"
    assert "max_tokens=32" in found["prompt"][1]


def test_profile_needs_no_prompt(made: list[FakeLLM], shell: Shell) -> None:
    found = json.loads(shell("profile", "m", "--json").out)

    assert (found["prompt"], found["options"]) == ([], ["sampling_params"])


def test_profile_writes_trace_picture_and_page(
    made: list[FakeLLM], shell: Shell, tmp_path: Path
) -> None:
    paths = {name: str(tmp_path / f"p.{end}") for name, end in FORMS.items()}
    options = [word for name, path in paths.items() for word in (f"--{name}", path)]

    found = json.loads(shell("--lang", "zh", "profile", "m", *options, "--json").out)

    assert found["files"] == paths
    assert json.loads(Path(paths["trace"]).read_text()) == {"traceEvents": []}
    assert Path(paths["html"]).read_text() == Path(paths["plot"]).read_text() == "zh"


def test_profile_says_what_it_wrote(made: list[FakeLLM], shell: Shell, tmp_path: Path) -> None:
    ended = shell("profile", "m", "--trace", str(tmp_path / "t.json"))

    assert ended.out == "*** forward *** en\n"
    assert f"written: {tmp_path / 't.json'}" in ended.err


@pytest.mark.parametrize(
    ("option", "path", "complaint"),
    [
        ("--trace", "t.txt", "must end with .json"),
        ("--plot", "p.jpg", "must end with .png"),
        ("--html", "nowhere/p.html", "is not a directory"),
    ],
)
def test_profile_refuses_a_file_before_it_loads_the_model(
    made: list[FakeLLM], shell: Shell, tmp_path: Path, option: str, path: str, complaint: str
) -> None:
    ended = shell("profile", "m", option, str(tmp_path / path))

    assert ended.code == 1
    assert complaint in ended.err
    assert made == []
