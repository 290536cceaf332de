from __future__ import annotations

import io
import json
import signal
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import dashinfer_lab
import dashinfer_lab.cli.chat as chat_command
from dashinfer_lab.cli.interruption import Interruption
from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.sampling import SamplingParams
from dashinfer_lab.tokenizer import SystemMessageWarning
from tests.cli.conftest import FakeHandle, FakeLLM, Shell, Terminal, Typed

ANSWER = " Paris, a city"


def _asked(llm: FakeLLM) -> list[list[tuple[str, str]]]:
    """Role and content of every conversation the model was given."""
    return [
        [(message["role"], message["content"]) for message in cast("list[Any]", messages)]
        for messages, _ in llm.asked
    ]


@pytest.fixture
def trouble(made: list[FakeLLM], monkeypatch: pytest.MonkeyPatch) -> FakeLLM:
    """The one model that the command will get, to prepare what befalls it."""
    llm = FakeLLM("m")
    monkeypatch.setattr(dashinfer_lab, "LLM", lambda *_, **__: llm)
    return llm


def test_a_pipe_gets_the_answers_and_nothing_else(
    made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO("Hi\n\nAnd then?"))
    ended = shell("chat", "m", "--weights", "a16w8", "--kv-cache-dtype", "fp32")

    assert (ended.code, ended.out) == (0, f"{ANSWER}\n{ANSWER}\n")
    assert ended.err == "4 tokens · 10.0 tokens/s · first token after 0.250 s\n" * 2
    assert made[0].closed


def test_every_answer_is_part_of_what_comes_after(
    made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO("Hi\nAnd then?\n"))
    shell("chat", "m", "--system", "Be brief.")

    first = [("system", "Be brief."), ("user", "Hi")]
    assert _asked(made[0]) == [first, [*first, ("assistant", ANSWER), ("user", "And then?")]]


def test_chat_hands_every_option_on(made: list[FakeLLM], shell: Shell, typed: Typed) -> None:
    typed(io.StringIO("Hi\n"))
    shell(
        *("chat", "m", "--temperature", "0.5", "--top-p", "0.9", "--max-tokens", "2"),
        *("--seed", "42", "--weights", "bf16", "--threads", "1"),
    )

    (llm,) = made
    params = llm.asked[0][1]
    assert (llm.weights, llm.threads) == ("bf16", 1)
    assert (params.temperature, params.top_p, params.max_tokens, params.seed) == (0.5, 0.9, 2, 42)


def test_a_template_of_one_s_own_is_handed_on(
    made: list[FakeLLM], shell: Shell, typed: Typed, tmp_path: Path
) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages }}")
    typed(io.StringIO("Hi\n"))
    ended = shell("chat", "m", "--chat-template", str(path))
    absent = shell("chat", "m", "--chat-template", str(tmp_path / "absent"))

    assert (ended.code, made[0].chat_template) == (0, path)
    assert (absent.code, "absent" in absent.err) == (2, True)


@pytest.mark.parametrize(("lang", "said"), [("en", "ChatML, the family's"), ("zh", "：ChatML")])
def test_a_family_s_own_format_and_a_moved_system_prompt_are_told(
    trouble: FakeLLM, shell: Shell, typed: Typed, monkeypatch: pytest.MonkeyPatch,
    lang: str, said: str,
) -> None:  # fmt: skip
    trouble.tokenizer = SimpleNamespace(built_in_format="ChatML")
    submit = trouble.submit

    def warning(messages: object, params: SamplingParams) -> object:
        warnings.warn("no place", SystemMessageWarning, stacklevel=1)
        return submit(messages, params)

    monkeypatch.setattr(trouble, "submit", warning)
    typed(io.StringIO("Hi\nAgain\n"))
    ended = shell("--lang", lang, "chat", "m", "--system", "Be brief", "--weights", "fp32")

    assert said in ended.err
    assert (
        ended.err.count({"en": "no place for a system prompt", "zh": "没有系统提示词"}[lang]) == 1
    )


def test_what_the_model_states_comes_before_our_defaults_and_after_what_is_asked(
    trouble: FakeLLM, shell: Shell, typed: Typed
) -> None:
    trouble.sampling_defaults = {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}
    typed(io.StringIO("Hi\nAnd then?\n"))
    ended = shell("chat", "m", "--top-p", "0.8")

    for _, params in trouble.asked:
        assert (params.temperature, params.top_p, params.repetition_penalty) == (0.6, 0.8, 1.1)
    said = "generation_config.json states: temperature 0.6, repetition_penalty 1.1"
    assert ended.err.count(said) == 1


def test_effective_options_are_readable(trouble: FakeLLM, shell: Shell, typed: Typed) -> None:
    trouble.sampling_defaults = {"temperature": 0.6}
    typed(io.StringIO(""))

    found = json.loads(shell("chat", "m", "--json").out)["sampling"]
    assert found == {"temperature": 0.6, "top_p": 0.95}


def test_chat_as_json_prints_one_object(made: list[FakeLLM], shell: Shell, typed: Typed) -> None:
    typed(io.StringIO("Hi\n/clear\nBye\n"))
    turns = json.loads(shell("chat", "m", "--json").out)["turns"]

    assert [(turn["message"], turn["text"]) for turn in turns] == [("Hi", ANSWER), ("Bye", ANSWER)]
    assert turns[0]["finish_reason"] == "stop"
    assert turns[0]["completion_tokens"] == 4


def test_commands_change_the_conversation(made: list[FakeLLM], shell: Shell, typed: Typed) -> None:
    typed(io.StringIO("Hi\n/system Be kind.\n/clear\nYes\n/system\n/clear\nNo\n/exit\nUnheard\n"))
    ended = shell("chat", "m")

    assert _asked(made[0]) == [
        [("user", "Hi")],
        [("system", "Be kind."), ("user", "Yes")],
        [("user", "No")],
    ]
    assert "the system prompt is now: Be kind." in ended.err


@pytest.mark.parametrize(("line", "said"), [("/help", "/system TEXT"), ("/hlep", "/hlep is no")])
def test_help_is_near(
    line: str, said: str, made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO(f"{line}\n"))
    ended = shell("chat", "m")

    assert ended.out == ""
    assert said in ended.err
    assert made[0].asked == []


def test_a_space_before_a_slash_sends_it_as_text(
    made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(io.StringIO(" /usr is what?\n"))
    shell("chat", "m")

    assert _asked(made[0]) == [[("user", "/usr is what?")]]


@pytest.mark.parametrize("last", ["", "^C\n^C\n"], ids=["Ctrl-D", "Ctrl-C twice"])
def test_leaving_at_the_prompt_is_no_error(
    last: str, made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(Terminal(f"Hi\n{last}"))
    ended = shell("chat", "m")

    assert (ended.code, ended.out) == (0, f"{ANSWER}\n")
    assert "/help" in ended.err
    assert made[0].closed


def test_one_interrupt_at_the_prompt_says_how_to_leave_and_the_talk_goes_on(
    made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    typed(Terminal("Hi\n^C\nAnd then?\n^C\n"))
    ended = shell("chat", "m")

    assert ended.code == 0
    assert ended.err.count("Ctrl-C once more") == 2
    assert [it[-1] for it in _asked(made[0])] == [("user", "Hi"), ("user", "And then?")]


def test_an_answer_that_was_cut_says_so(
    monkeypatch: pytest.MonkeyPatch, made: list[FakeLLM], shell: Shell, typed: Typed
) -> None:
    monkeypatch.setattr(FakeHandle, "ended_by", "length")
    typed(io.StringIO("Hi\n"))

    assert "--max-tokens" in shell("chat", "m").err


def test_an_interrupt_stops_one_answer_and_what_was_shown_is_kept(
    trouble: FakeLLM, shell: Shell, typed: Typed
) -> None:
    trouble.interrupt_at = 2
    typed(Terminal("Hi\nAnd then?\n"))
    ended = shell("chat", "m")

    assert (ended.code, ended.out) == (0, f" Paris,\n{ANSWER}\n")
    assert ended.err.count("stopped · ") == 1
    assert _asked(trouble)[1] == [("user", "Hi"), ("assistant", " Paris,"), ("user", "And then?")]


def test_a_turn_stopped_before_its_first_word_is_left_out(
    trouble: FakeLLM, shell: Shell, typed: Typed
) -> None:
    trouble.interrupt_at = 0
    typed(Terminal("Hi\nAnd then?\n"))
    shell("chat", "m")

    assert _asked(trouble)[1] == [("user", "And then?")]


def test_a_refused_message_does_not_end_a_conversation(
    trouble: FakeLLM, shell: Shell, typed: Typed
) -> None:
    trouble.errors.append(RequestError("the prompt is too long"))
    typed(Terminal("Long\nShort\n"))
    ended = shell("chat", "m")

    assert (ended.code, ended.out) == (0, f"{ANSWER}\n")
    assert "error: the prompt is too long" in ended.err
    assert _asked(trouble)[1] == [("user", "Short")]


def test_a_refused_message_ends_a_pipe(trouble: FakeLLM, shell: Shell, typed: Typed) -> None:
    trouble.errors.append(RequestError("the prompt is too long"))
    typed(io.StringIO("Long\nShort\n"))

    assert shell("chat", "m").code == 1


def test_a_model_without_a_template_ends_with_its_error(
    trouble: FakeLLM, shell: Shell, typed: Typed
) -> None:
    trouble.errors.append(TokenizerError("m has no chat template"))
    typed(Terminal("Hi\n"))
    ended = shell("chat", "m")

    assert ended.code == 1
    assert "m has no chat template" in ended.err
    assert trouble.closed


def test_an_interrupt_before_there_is_anything_to_stop_is_remembered() -> None:
    stopped: list[bool] = []
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        interruption.stops(lambda: stopped.append(True))

    assert stopped == [True]


def test_a_second_interrupt_is_not_held_back() -> None:
    with Interruption():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("typed_so_far", "leaves"), [("half a li", False), ("", True)])
def test_an_interrupt_drops_what_is_typed_before_it_leaves(
    typed_so_far: str,
    leaves: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    readline = pytest.importorskip("readline")
    monkeypatch.setattr(readline, "get_line_buffer", lambda: typed_so_far)
    monkeypatch.setattr("builtins.input", lambda _: signal.raise_signal(signal.SIGINT))

    with pytest.raises(KeyboardInterrupt) if leaves else nullcontext():
        assert chat_command._ask_with_editing() == ""

    assert capsys.readouterr().out == ("" if leaves else "\n")
