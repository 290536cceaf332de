from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.errors import ConfigError, RequestError
from dashinfer_lab.profiling import OpProfile
from tests.widgets.conftest import PARAMS, PROMPT

UNSEEN = {**PROMPT, "cache_salt": "profiled cell"}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    config = pytest.importorskip("traitlets.config").Config()
    config.HistoryManager.enabled = False
    made = interactive.InteractiveShell(config=config)
    made.run_line_magic("load_ext", "dashinfer_lab")
    yield made
    made.run_line_magic("unload_ext", "dashinfer_lab")
    assert "chat" not in made.magics_manager.magics["cell"]


@pytest.mark.model
def test_chat_goes_on_from_cell_to_cell(
    shell: Any, embedded: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.user_ns["llm"] = embedded
    options = "--temperature 0 --max-tokens 6"

    shell.run_cell_magic("chat", f"{options} -o first", "What is a CPU?\n")
    shell.run_cell_magic("chat", f"llm {options} -o second", "And RAM?")
    shell.run_cell_magic("chat", f"{options} --new -o again", "What is a CPU?")

    said = capsys.readouterr().out
    first = shell.user_ns["first"]
    messages = [{"role": "user", "content": "What is a CPU?"}]
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "And RAM?"}]
    params = SamplingParams(temperature=0, max_tokens=6)
    assert shell.user_ns["second"] == embedded.chat(messages, params)[0].outputs[0].text
    assert shell.user_ns["again"] == first
    assert first in said
    assert said.count("· 6 tokens ·") == 3


@pytest.mark.model
def test_chat_raises_what_was_refused(shell: Any, embedded: LLM) -> None:
    shell.user_ns["llm"] = embedded

    with pytest.raises(RequestError):
        shell.run_cell_magic("chat", "", "word " * 20_000)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%chat\nhello", "ConfigError: 0 models are loaded"),
        ("%%chat --top-k none\nhello", "ConfigError: %%chat: argument --top-k"),
        ("%%profile nobody\n1 + 1", "ConfigError: nobody is no loaded model"),
    ],
)
def test_what_a_magic_refuses_is_said_without_its_traceback(
    shell: Any, capsys: pytest.CaptureFixture[str], cell: str, words: str
) -> None:
    result = shell.run_cell(cell)

    assert isinstance(result.error_in_exec, ConfigError)
    said = capsys.readouterr()
    assert (said.out + said.err).startswith(words)
    assert "magics.py" not in said.out + said.err


def test_profile_runs_the_cell_and_shows_where_its_time_went(
    shell: Any, tiny: LLM, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    display = pytest.importorskip("IPython.display")
    shown: list[Any] = []
    monkeypatch.setattr(display, "display", shown.append)
    shell.user_ns.update(llm=tiny, PROMPT=UNSEEN, PARAMS=PARAMS)
    saved = tmp_path / "trace.json"

    shell.run_cell_magic(
        "profile", f"--no-roof -o found --save {saved}", "out = llm.generate(PROMPT, PARAMS)\n"
    )

    assert len(shell.user_ns["out"][0].outputs[0].token_ids) == 5
    assert isinstance(shell.user_ns["found"], OpProfile)
    assert shell.user_ns["found"].prefill.num_tokens == 40
    assert shown[0].profile is shell.user_ns["found"]
    assert saved.stat().st_size > 0


def test_an_error_in_a_profiled_cell_is_raised_and_recording_ends(shell: Any, tiny: LLM) -> None:
    shell.user_ns["llm"] = tiny

    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("profile", "--no-roof", "1 / 0")

    with tiny.profiling() as recorder:
        tiny.generate([PROMPT], PARAMS)
    assert len(recorder.steps) > 0


def test_which_model_is_meant_must_be_clear(shell: Any, tiny: LLM) -> None:
    with pytest.raises(ConfigError, match="load one first"):
        shell.run_cell_magic("chat", "", "Hello")
    shell.user_ns.update(llm=tiny, same=tiny, number=3)

    with pytest.raises(ConfigError, match="number is no loaded model: llm, same"):
        shell.run_cell_magic("chat", "number", "Hello")


def test_two_models_are_named(shell: Any, tiny: LLM, tiny_directory: Path) -> None:
    with LLM(tiny_directory, threads=1) as other:
        shell.user_ns.update(one=tiny, other=other)
        with pytest.raises(ConfigError, match="2 models are loaded, name one: one, other"):
            shell.run_cell_magic("profile", "--no-roof", "pass")


@pytest.mark.parametrize("line", ["--colour red", "--max-tokens many", "'"])
def test_an_option_that_is_not_understood_ends_no_process(shell: Any, tiny: LLM, line: str) -> None:
    shell.user_ns["llm"] = tiny

    with pytest.raises(ConfigError, match="%%chat"):
        shell.run_cell_magic("chat", line, "Hello")
