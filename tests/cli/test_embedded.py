"""The commands on the embedded model, nothing replaced."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

pytestmark = pytest.mark.model

QUESTION = "What is the capital of France, and what is it known for?"


@pytest.fixture(autouse=True)
def _fetched(embedded_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASHINFER_LAB_EMBEDDED", str(embedded_gguf))


def test_run_knows_the_capital_of_france(shell: Shell) -> None:
    ended = shell("run", "smollm2-135m", "The capital of France is", "--max-tokens", "8", "--json")

    answer = json.loads(ended.out)
    assert ended.code == 0
    assert "Paris" in answer["text"]
    assert answer["completion_tokens"] == len(answer["token_ids"]) == 8


def test_streamed_and_whole_answers_are_the_same(shell: Shell) -> None:
    arguments = ("run", "smollm2-135m", "Once upon a time", "--max-tokens", "24")

    streamed = shell(*arguments).out
    whole = json.loads(shell(*arguments, "--json").out)["text"]

    assert streamed == whole + "\n"


def test_quickstart_tells_what_happens_and_how_fast(shell: Shell) -> None:
    ended = shell("quickstart", "--max-tokens", "16")

    assert ended.code == 0
    assert "Paris" in ended.out
    for figure in ("tokens/s", "first token after", "memory"):
        assert figure in ended.out
    for step in ("[1/3]", "[2/3]", "[3/3]"):
        assert step in ended.err


def test_quickstart_as_json_prints_one_object(shell: Shell) -> None:
    answer = json.loads(shell("quickstart", "--max-tokens", "4", "--json").out)

    assert answer["completion_tokens"] == 4
    assert answer["process_mb"] > answer["weight_mb"] > 100


def test_a_converted_directory_runs_like_its_source(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "converted"
    scheme = ("--weights", "a16w8:32")  # what "auto" takes for this file
    made = json.loads(shell("convert", "smollm2-135m", str(target), *scheme, "--json").out)
    same = shell("convert", "smollm2-135m", str(target), *scheme)
    again = shell("convert", "smollm2-135m", str(target), "--weights", "bf16")

    answers = [
        json.loads(shell("run", model, "One, two,", "--max-tokens", "5", "--json").out)["text"]
        for model in ("smollm2-135m", str(target))
    ]

    assert made["path"] == str(target)
    assert (made["scheme"], made["was_there"]) == ("a16w8:32", False)
    assert "already: nothing was done" in same.err
    assert same.out == f"{target}\n"
    assert answers[0] == answers[1]
    assert again.code == 1
    assert str(target) in again.err


def _remarks(said: str) -> list[str]:
    """Lines on stderr, but for the one that a busy machine adds."""
    return [line for line in said.splitlines() if not line.startswith("other programs keep")]


def _chat(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dashinfer_lab",
            "chat",
            "smollm2-135m",
            "--temperature=0",
            *options,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_chat_through_a_pipe_remembers_what_was_said() -> None:
    with _chat("--max-tokens=24", "--json") as running:
        out, said = running.communicate(f"{QUESTION}\nWhy?\n")

    turns = json.loads(out)["turns"]
    assert (running.returncode, _remarks(said)) == (0, [])
    assert "Paris" in turns[0]["text"]
    assert turns[1]["prompt_tokens"] > turns[0]["prompt_tokens"] + turns[0]["completion_tokens"]


def test_an_interrupt_stops_the_answer_and_the_chat_goes_on() -> None:
    with _chat("--max-tokens=1000") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("Write a long story about a fox, in many chapters.\n")
        running.stdin.flush()
        first = running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        rest, said = running.communicate(f"/clear\n{QUESTION}\n/exit\n")

    assert running.returncode == 0
    assert any(line.startswith("stopped · ") for line in said.splitlines())
    assert "Paris" in first + rest


def test_an_answer_that_was_submitted_has_metrics_and_can_be_cancelled() -> None:
    from dashinfer_lab import LLM, SamplingParams

    with LLM("smollm2-135m") as llm:
        whole = llm.submit("One, two,", SamplingParams(temperature=0, max_tokens=5))
        text = "".join(event.text for event in whole)
        streamed = "".join(llm.stream("One, two,", SamplingParams(temperature=0, max_tokens=5)))
        endless = llm.submit([{"role": "user", "content": "Hi"}], SamplingParams(max_tokens=None))
        endless.cancel()
        endless.completion()

    assert text == streamed
    assert whole.metrics is not None
    assert whole.metrics.num_output_tokens == 5
    assert endless.finish_reason == "cancelled"


def test_profile_names_the_operators(shell: Shell) -> None:
    found = json.loads(shell("profile", "smollm2-135m", "Hi", "--max-tokens=3", "--json").out)
    report = shell("profile", "smollm2-135m", "--max-tokens=3").out

    assert found["decode"]["forward"]
    assert "*** forward ***" in report


def test_pull_prints_where_the_model_lies(shell: Shell, embedded_gguf: Path) -> None:
    assert shell("pull", "smollm2-135m").out == f"{embedded_gguf}\n"


@pytest.mark.parametrize("command", [("run", "no-such-model", "Hi"), ("pull", "no-such-model")])
def test_an_unknown_model_is_named_with_the_way_out(command: tuple[str, ...], shell: Shell) -> None:
    ended = shell(*command)

    assert (ended.code, ended.out) == (1, "")
    assert "no-such-model" in ended.err
    assert "smollm2-135m" in ended.err


def test_a_prompt_beyond_the_context_is_refused(shell: Shell) -> None:
    prompt = "word " * 9000
    ended = shell("run", "smollm2-135m", prompt, "--max-tokens", "1", "--weights", "a16w8")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[-1].startswith("error: ")


def test_an_empty_prompt_is_refused(shell: Shell) -> None:
    ended = shell("run", "smollm2-135m", "", "--max-tokens", "1", "--json")

    assert ended.code == 1
    assert json.loads(ended.out)["error"]["type"] == "RequestError"


def test_an_interrupt_while_streaming_ends_cleanly() -> None:
    command = [sys.executable, "-m", "dashinfer_lab", "run", "smollm2-135m"]
    arguments = ["Once upon a time", "--max-tokens", "4000"]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        first = running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()

    assert first
    assert running.returncode == 130
    assert _remarks(said)[-1] == "error: interrupted"
