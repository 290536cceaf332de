from __future__ import annotations

import json

from tests.cli.conftest import FakeLLM, Shell


def test_profile_prints_the_report(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("profile", "m", "Hi")

    assert (ended.code, ended.out) == (0, "*** forward ***\n")
    assert made[0].closed


def test_profile_as_json_prints_its_tables(made: list[FakeLLM], shell: Shell) -> None:
    found = json.loads(shell("profile", "m", "Hi", "--json").out)

    assert found["prompt"][0] == "Hi"
    assert "max_tokens=32" in found["prompt"][1]


def test_profile_needs_no_prompt(made: list[FakeLLM], shell: Shell) -> None:
    found = json.loads(shell("profile", "m", "--json").out)

    assert (found["prompt"], found["options"]) == ([], ["sampling_params"])
