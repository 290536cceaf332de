from __future__ import annotations

import _thread
import threading
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.errors import ConfigError, EngineClosedError, RequestError
from dashinfer_lab.widgets import ChatPanel
from dashinfer_lab.widgets.chat_session import Turn
from tests.widgets.conftest import eventually

pytestmark = pytest.mark.model

SHORT = SamplingParams(temperature=0, max_tokens=8)
ENDLESS = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True)


def _panel(llm: LLM, params: SamplingParams = SHORT) -> ChatPanel:
    return ChatPanel(llm, params=params, lang="en")


def test_the_answer_is_that_of_chat_and_the_conversation_goes_on(embedded: LLM) -> None:
    panel = _panel(embedded)
    messages = [{"role": "user", "content": "What is a CPU?"}]
    expected = embedded.chat(messages, SHORT)[0].outputs[0].text

    first = panel.ask("What is a CPU?")
    second = panel.ask("And RAM?")

    messages += [
        {"role": "assistant", "content": first},
        {"role": "user", "content": "And RAM?"},
    ]
    assert first == expected
    assert second == embedded.chat(messages, SHORT)[0].outputs[0].text
    assert "8 tokens" in panel.turns[-1].note
    assert "tokens/s" in panel.turns[-1].note


def test_send_is_typed_answered_and_shown(embedded: LLM) -> None:
    panel = _panel(embedded)
    _ = panel.widget
    parts = panel._parts
    assert parts.buttons["stop"].disabled

    parts.box.value = "Hello"
    parts.buttons["send"].click()

    assert panel.wait(30)
    assert parts.box.value == ""
    assert panel.turns[0].answer in panel.picture.value
    assert "tokens/s" in panel.picture.value
    assert not parts.buttons["send"].disabled
    panel.close()


def test_stop_ends_the_request_in_the_engine_and_keeps_what_came(embedded: LLM) -> None:
    panel = _panel(embedded, ENDLESS)
    _ = panel.widget
    panel.send("Count to a million.")
    assert eventually(lambda: "tokens/s" in panel.picture.value, 30)
    assert panel.turns[-1].answer

    panel._parts.buttons["stop"].click()

    assert eventually(lambda: embedded.engine.stats().num_running == 0)
    assert panel.wait(10)
    assert panel.turns[-1].answer
    assert panel.turns[-1].note.startswith("stopped")
    panel.close()


def test_a_stop_right_after_send_is_heard(embedded: LLM) -> None:
    panel = _panel(embedded, ENDLESS)

    panel.send("Count to a million.")
    panel.stop()

    assert panel.wait(10)
    assert panel.turns[-1].note.startswith("stopped")


def test_regenerate_answers_the_last_message_again(embedded: LLM) -> None:
    panel = _panel(embedded)
    panel.ask("One?")
    panel.ask("Two?")
    panel.set_sampling(max_tokens=3)

    panel.regenerate()

    assert panel.wait(30)
    assert [turn.message for turn in panel.turns] == ["One?", "Two?"]
    assert "3 tokens" in panel.turns[-1].note


def test_sliders_change_the_request_and_a_bad_value_is_said(embedded: LLM) -> None:
    panel = _panel(embedded)
    sliders = panel.widget.children[-1].children[0].children
    by_name = {slider.description: slider for slider in sliders}

    by_name["temperature"].value = 0.7
    by_name["longest answer"].value = 5
    by_name["seed (-1: fresh)"].value = -7

    assert (panel.params.temperature, panel.params.max_tokens) == (0.7, 5)
    assert "dl-bad" in panel.picture.value
    assert "seed" in panel.picture.value
    by_name["seed (-1: fresh)"].value = 3
    assert "dl-bad" not in panel.picture.value
    assert panel.params.seed == 3
    with pytest.raises(RequestError, match="top_p"):
        panel.set_sampling(top_p=7)
    panel.close()


def test_what_the_model_writes_is_never_markup(embedded: LLM) -> None:
    panel = _panel(embedded)
    panel.turns.append(Turn("<b>me</b>", "<img src=x onerror=alert(1)>", "<i>note</i>"))

    assert "<b>me" not in panel.html
    assert "<img" not in panel.html
    assert "&lt;img src=x onerror=alert(1)&gt;" in panel.html


def test_an_interrupt_keeps_what_came_and_the_next_question_works(embedded: LLM) -> None:
    panel = _panel(embedded, ENDLESS)

    def interrupt() -> None:
        if eventually(lambda: bool(panel.turns and panel.turns[-1].answer), 30):
            _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        panel.ask("Count to a million.")

    assert panel.turns[-1].answer
    assert panel.turns[-1].note == "stopped"
    assert eventually(lambda: embedded.engine.stats().num_running == 0, 1)
    panel.params = SHORT
    assert panel.ask("Hello")


def test_a_request_that_is_refused_is_said_and_raised(embedded: LLM) -> None:
    panel = _panel(embedded)
    endless: Any = "word " * 20_000

    with pytest.raises(RequestError):
        panel.ask(endless)

    assert panel.turns[-1].note.startswith("not answered")
    assert panel.ask("Hello")


def test_a_closed_model_is_said_to_be_closed(tiny_directory: Path, embedded: LLM) -> None:
    with LLM(embedded.artifact.directory, threads=1) as llm:
        panel = ChatPanel(llm, lang="en")

    with pytest.raises(EngineClosedError):
        panel.ask("Hello")


def test_a_second_question_waits_for_the_first(embedded: LLM) -> None:
    panel = _panel(embedded, ENDLESS)
    panel.send("Count to a million.")

    with pytest.raises(ConfigError, match="on its way"):
        panel.ask("Hello")
    panel.send("Hello")
    panel.clear()

    assert panel.wait(10)
    assert panel.turns == []
