from __future__ import annotations

import json

import pytest

from jit_kernels.autotune import Choice
from tests.cli.conftest import FakeLLM, Shell

KIND = "linear_u8 i16 64 f16"
CHOICE = Choice(
    8, {KIND: "1024.16.256.8.2048.256.128", "linear_bf16": "default"}, {f"{KIND}, 8 rows": 1.25}
)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeLLM, "schedules", CHOICE)


@pytest.mark.usefixtures("chosen")
def test_tune_measures_again_and_shows_what_was_gained(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("tune", "some/dir", "--weights", "a16w8", "--threads", "1")

    (llm,) = made
    assert (llm.model, llm.weights, llm.threads) == ("some/dir", "a16w8", 1)
    assert (llm.autotune, llm.closed) == ("again", True)
    assert ended.code == 0
    assert "+25 %" in ended.out
    assert "the default" in ended.out
    assert "kept" in ended.err


@pytest.mark.usefixtures("chosen")
def test_tune_as_json_holds_the_choice(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("tune", "m", "--json")

    found = json.loads(ended.out)
    assert ended.err == ""
    assert found["schedules"]["schedules"][KIND] == CHOICE.schedules[KIND]
    assert found["schedules"]["gains"] == CHOICE.gains
    assert found["threads"] == 2


def test_tune_says_when_the_machine_was_too_busy(made: list[FakeLLM], shell: Shell) -> None:
    assert "nothing was kept" in shell("tune", "m").err
    assert "未保存" in shell("--lang", "zh", "tune", "m").err
    assert json.loads(shell("tune", "m", "--json").out)["schedules"] is None


def test_other_commands_measure_nothing(made: list[FakeLLM], shell: Shell) -> None:
    shell("run", "m", "Hi")

    assert made[0].autotune is False
