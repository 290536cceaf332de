"""The demo in a browser, over models that say what a test wants on the real engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashinfer_lab.demo import Demo, DemoOptions, serve
from dashinfer_lab.demo.shelf import Choice
from tests.browser.conftest import PHONE, Visitor, Watched
from tests.demo.conftest import eventually
from tests.demo.scripted_model import KV_REASON, ScriptedLLM

pytestmark = pytest.mark.filterwarnings("default")  # of a server's own libraries

MARKUP = '<b>bold</b> <img src="x.png" onerror="document.title=1"> ![a](http://h.invalid/x.png)'
STATED = {"bf16": {"temperature": 0.3}}  # what the bf16 model's makers recommend
BOX = "#message textarea"
ANSWERS = "#chat .bot .message"


@pytest.fixture(scope="module")
def models() -> list[ScriptedLLM]:
    """Every model that the page loaded."""
    return []


@pytest.fixture(scope="module")
def demo(models: list[ScriptedLLM]) -> Iterator[Demo]:
    """The page in English."""

    def load(choice: Choice, progress: object) -> Any:
        models.append(ScriptedLLM(choice))
        models[-1].sampling_defaults = STATED.get(choice.weights, {})
        return models[-1]

    with serve("script", "fp32", DemoOptions(language="en"), load=load) as served:
        yield served


@pytest.fixture
def tab(demo: Demo, visitor: Visitor) -> Watched:
    """The page, open."""
    return visitor.open(demo.url)


def ask(tab: Watched, message: str) -> None:
    """Send a message by the keyboard."""
    tab.page.fill(BOX, message)
    tab.page.press(BOX, "Enter")


def wait_for_note(tab: Watched, number: int = 1) -> str:
    """Wait for the line under the `number`-th answer."""
    note = tab.page.locator("#chat .note").nth(number - 1)
    note.wait_for()
    return str(note.inner_text())


def wait_for_text(tab: Watched, text: str) -> None:
    """Wait until an answer has `text`."""
    tab.page.locator(ANSWERS).filter(has_text=text).first.wait_for()


def num_running(models: list[ScriptedLLM]) -> int:
    return sum(llm.engine.stats().num_running for llm in models if llm.engine.alive)


def test_an_answer_streams_and_its_figures_stand_under_it(
    tab: Watched, models: list[ScriptedLLM]
) -> None:
    ask(tab, "count")
    wait_for_text(tab, "1 2")
    assert num_running(models) == 1
    tab.page.click("#stop")
    wait_for_note(tab)
    ask(tab, "say one two three")

    assert re.fullmatch(
        r"14 tokens · [\d.]+ tokens/s · first token after [\d.]+ s", wait_for_note(tab, 2)
    )
    assert tab.page.input_value(BOX) == ""
    assert models[0].params[-1].seed is None


def test_chinese_and_emoji_come_whole(tab: Watched) -> None:
    ask(tab, "say 你好，世界 🙂👩‍👩‍👧")
    wait_for_note(tab)

    assert "你好，世界 🙂👩‍👩‍👧" in tab.page.locator(ANSWERS).first.inner_text()


def test_markup_is_shown_as_it_was_written_and_nothing_is_fetched_for_it(tab: Watched) -> None:
    ask(tab, f"say {MARKUP}")
    wait_for_note(tab)

    shown = tab.page.locator(ANSWERS).first.inner_text().replace("\u2060", "")
    assert MARKUP in shown
    assert tab.page.locator("#chat img, #chat .message b").count() == 0
    assert tab.page.title() == "DashInfer Lab"
    tab.screenshot("markup")


def test_what_is_copied_is_what_the_model_wrote(demo: Demo, visitor: Visitor) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    tab = visitor.open(demo.url, permissions=permissions)
    ask(tab, f"say {MARKUP}")
    wait_for_note(tab)
    tab.page.click("#chat .copy")

    assert tab.page.evaluate("navigator.clipboard.readText()") == MARKUP
    tab.page.locator("#chat button[aria-label='Copy message']").first.click()
    assert tab.page.evaluate("navigator.clipboard.readText()") == f"say {MARKUP}"


def test_stop_ends_the_request_in_the_engine_within_a_second(
    tab: Watched, models: list[ScriptedLLM]
) -> None:
    ask(tab, "count")
    wait_for_text(tab, "1 2 3")
    assert num_running(models) == 1
    tab.page.click("#stop")

    assert eventually(lambda: num_running(models) == 0, seconds=1)
    assert wait_for_note(tab).startswith("stopped")
    tab.page.locator("#send").wait_for()
    ask(tab, "say again")
    wait_for_note(tab, 2)


def test_closing_a_tab_ends_its_own_request_only(
    demo: Demo, visitor: Visitor, models: list[ScriptedLLM]
) -> None:
    first, second = visitor.open(demo.url), visitor.open(demo.url)
    for tab in (first, second):
        ask(tab, "count")
        wait_for_text(tab, "1 2 3")
    assert num_running(models) == 2
    first.page.close()

    assert eventually(lambda: num_running(models) == 1)
    before = len(second.page.locator(ANSWERS).first.inner_text())
    assert eventually(lambda: len(second.page.locator(ANSWERS).first.inner_text()) > before)
    second.page.click("#stop")
    assert eventually(lambda: num_running(models) == 0)


def test_stopping_one_tab_leaves_the_other(
    demo: Demo, visitor: Visitor, models: list[ScriptedLLM]
) -> None:
    first, second = visitor.open(demo.url), visitor.open(demo.url)
    for tab, word in ((first, "left"), (second, "right")):
        ask(tab, f"count {word}")
        wait_for_text(tab, "1 2 3")
    first.page.click("#stop")

    assert wait_for_note(first).startswith("stopped")
    assert num_running(models) == 1
    assert "right" not in first.text_of("#chat")
    assert "left" not in second.text_of("#chat")
    second.page.click("#stop")
    assert eventually(lambda: num_running(models) == 0)


def test_an_answer_is_made_again(tab: Watched, models: list[ScriptedLLM]) -> None:
    ask(tab, "say once")
    wait_for_note(tab)
    asked = len(models[0].prompts)
    tab.page.locator("#chat button[aria-label='Retry']").click()

    assert eventually(lambda: len(models[0].prompts) == asked + 1)
    assert models[0].prompts[-1] == [{"role": "user", "content": "say once"}]
    assert eventually(lambda: tab.page.locator("#chat .note").count() == 1)
    assert len(models[0].prompts) == asked + 1


def test_a_message_is_edited_and_answered_anew(tab: Watched, models: list[ScriptedLLM]) -> None:
    ask(tab, "say <i>first</i>")
    wait_for_note(tab)
    ask(tab, "say second")
    wait_for_note(tab, 2)
    tab.page.locator("#chat button[aria-label='Edit']").first.click()
    editor = tab.page.locator("#chat textarea").first
    editor.fill(editor.input_value() + "!")
    tab.page.locator("#chat button[aria-label='Submit']").first.click()
    wait_for_text(tab, "first</i>!".replace("</", "<\u2060/"))

    assert models[0].prompts[-1] == [{"role": "user", "content": "say <i>first</i>!"}]
    assert "second" not in tab.text_of("#chat")


def test_a_new_chat_begins_empty(tab: Watched, models: list[ScriptedLLM]) -> None:
    ask(tab, "say secret")
    wait_for_note(tab)
    tab.page.click("#clear")
    tab.page.locator(ANSWERS).first.wait_for(state="detached")
    ask(tab, "say fresh")
    wait_for_note(tab)

    assert [m["content"] for m in models[0].prompts[-1]] == ["say fresh"]


def test_an_example_is_asked_by_a_click(tab: Watched) -> None:
    tab.page.get_by_text("What is a CPU cache?").click()

    assert "tokens" in wait_for_note(tab)
    assert "You said: What is a CPU cache?" in tab.text_of("#chat")


def test_the_controls_reach_the_model(tab: Watched, models: list[ScriptedLLM]) -> None:
    page = tab.page
    page.get_by_role("button", name="System prompt").click()
    page.fill("#system textarea", "Be kind.")
    page.get_by_role("button", name="Sampling").click()
    page.locator("#seed").wait_for()
    values = {"#temperature": "0.25", "#top-k": "20", "#seed": "42"}
    for name, value in values.items():
        control = page.locator(f"{name} input[type=number], {name} textarea, {name} input").first
        control.fill(value)
        control.press("Tab")
    ask(tab, "say hi")
    wait_for_note(tab)

    params = models[0].params[-1]
    assert (params.temperature, params.top_k, params.seed) == (0.25, 20, 42)
    assert models[0].prompts[-1][0] == {"role": "system", "content": "Be kind."}


def test_picking_weights_loads_them(tab: Watched, models: list[ScriptedLLM]) -> None:
    tab.page.get_by_role("button", name="Sampling").click()
    tab.page.click("#weights input")
    tab.page.get_by_role("option", name="bf16").click()
    tab.page.locator("#facts dd").filter(has_text="bf16").wait_for()
    assert eventually(lambda: tab.page.input_value("#temperature input[type=number]") == "0.3")
    ask(tab, "say hi")
    wait_for_note(tab)

    (chosen,) = (llm for llm in models if llm.choice.weights == "bf16")
    assert chosen.params[0].temperature == 0.3
    assert chosen.prompts == [[{"role": "user", "content": "say hi"}]]


def test_picking_a_format_of_keys_and_values_loads_it(
    tab: Watched, models: list[ScriptedLLM]
) -> None:
    tab.page.click("#kv-cache-dtype input")
    tab.page.get_by_role("option", name="int8").click()
    assert eventually(lambda: models[-1].choice.kv_cache_dtype == "int8")
    ask(tab, "say hi")
    wait_for_note(tab)

    assert models[-1].choice.kv_cache_dtype == "int8"


def test_a_model_that_is_not_there_is_refused_by_name(tab: Watched) -> None:
    page = tab.page
    page.fill("#model input", "missing<b>")
    page.press("#model input", "Enter")
    page.locator("#refused").filter(has_text="Not loaded: no model 'missing<b>'").wait_for()
    assert page.locator("#refused b").count() == 0
    page.fill("#model input", "script")
    page.press("#model input", "Enter")
    page.locator("#facts dd").filter(has_text="0 running").wait_for()

    assert not page.locator("#refused").is_visible()


def test_a_seed_that_is_no_number_is_refused_under_its_message(tab: Watched) -> None:
    tab.page.get_by_role("button", name="Sampling").click()
    tab.page.fill("#seed textarea, #seed input", "<b>many</b>")
    ask(tab, "say hi")

    note = wait_for_note(tab)
    assert (
        note == "not answered: seed='<b>many</b>' is not possible: give a whole number, or nothing"
    )


def test_two_weights_are_compared(tab: Watched, models: list[ScriptedLLM]) -> None:
    page = tab.page
    page.get_by_role("tab", name="Compare").click()
    page.fill("#compare-prompt textarea", "say the same")
    page.click("#compare-run")
    page.locator(".verdict.same").wait_for()

    for side in ("left", "right"):
        assert page.input_value(f"#answer-{side} textarea") == "the same"
        assert "tokens/s" in tab.text_of(f"#note-{side}")
    # The first is what the chat has loaded.
    assert [page.input_value(f"#compare-{side} input") for side in ("left", "right")] == [
        "fp32",
        "a16w8",
    ]
    assert {"a16w8", "fp32"} <= {llm.choice.weights for llm in models}


def test_a_comparison_is_stopped(tab: Watched, models: list[ScriptedLLM]) -> None:
    page = tab.page
    page.get_by_role("tab", name="Compare").click()
    page.fill("#compare-prompt textarea", "count")
    page.click("#compare-run")
    assert eventually(lambda: num_running(models) == 1)
    page.click("#compare-stop")

    assert eventually(lambda: num_running(models) == 0)
    page.locator("#compare-run").wait_for()
    assert page.locator(".verdict").count() == 0


def test_the_panel_tells_the_machine(tab: Watched) -> None:
    tab.page.locator("#facts dd").filter(has_text="0 running").wait_for()

    facts = tab.text_of("#facts")
    assert f"fp32 {KV_REASON['en']}" in facts
    for name in (
        "Engine",
        "KV cache",
        "Keys and values",
        "Weights",
        "Instruction set",
        "Threads",
        "Memory",
    ):
        assert name in facts


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_without_scrolling_sideways(
    scheme: str, demo: Demo, visitor: Visitor
) -> None:
    tab = visitor.open(demo.url, size=PHONE, color_scheme=scheme)
    ask(tab, "say " + "W" * 80 + " " + "`" + "x" * 80 + "`")
    wait_for_note(tab)

    assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for selector in (BOX, "#send", "#clear", "#model", "#facts"):
        box = tab.page.locator(selector).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    tab.screenshot(f"phone-{scheme}")


def test_no_web_font_and_no_beacon_is_in_the_page(demo: Demo, visitor: Visitor) -> None:
    tab = visitor.open(demo.url)
    tab.page.locator("#facts dd").first.wait_for()
    tab.page.locator("link[rel=icon]").wait_for(state="attached")
    fonts = tab.page.evaluate("[...document.fonts].map(font => font.family)")
    links = tab.page.evaluate(
        "[...document.querySelectorAll('link[href], script[src]')].map(e => e.href || e.src)"
    )

    assert [font for font in fonts if "Source" in font or "IBM" in font] == []
    assert [link for link in links if not link.startswith((demo.url, "data:"))] == []
