"""Templates of the wild render as transformers' own environment renders them, and llama.cpp's."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import pytest
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dashinfer_lab.errors import DashInferLabError
from dashinfer_lab.tokenizer import SystemMessageWarning
from dashinfer_lab.tokenizer.chat import ChatTemplate
from tests.tokenizer.cpp_table import Value, parse_table

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 4, 5, 6)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather of a <place>.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Où?"}},
            "required": ["place"],
        },
    },
}
CALL = {"name": "get_weather", "arguments": {"place": "Zürich"}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a helpful assistant, and patient"},
    {"role": "user", "content": " Hello, how are you? "},
    {"role": "assistant", "content": "  Fine <b>thank</b> you!\n"},
    {"role": "user", "content": "And the weather?"},
]
CALLED: list[dict[str, Any]] = [
    *CHAT[1:],
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call00001", "type": "function", "function": CALL}]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "12 °C"},
]  # fmt: skip
SCENES: dict[str, dict[str, Any]] = {
    "chat": {"messages": CHAT},
    "no system": {"messages": CHAT[1:]},
    "an answer to go on": {"messages": CHAT[1:3], "add_generation_prompt": False},
    "tools": {"messages": CHAT, "tools": [TOOL]},
    "a call": {"messages": CALLED, "tools": [TOOL]},
    "functions": {"messages": CHAT[1:], "variables": {"functions": "[]", "datetime": "today"}},
}


class Generation(Extension):
    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def witness(source: str, scene: Mapping[str, Any]) -> str:
    """Render as transformers 5 does (utils/chat_template_utils.py), unbounded."""

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def refuse(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = NOW.strftime
    return environment.from_string(source).render(
        messages=scene["messages"],
        tools=scene.get("tools"),
        documents=None,
        add_generation_prompt=scene.get("add_generation_prompt", True),
        **SPECIAL,
        **scene.get("variables", {}),
    )


def ours(source: str, scene: Mapping[str, Any]) -> str:
    given = dict(scene)
    return ChatTemplate(source, SPECIAL, lambda: NOW).render(given.pop("messages"), **given)


GENERATING = {"llama-cpp-deepseek-r1"}
"""Templates that make JSON of a generator, which is a list here, as it is in llama.cpp."""


@pytest.mark.parametrize("scene", SCENES)
def test_the_seventy_templates_render_as_in_transformers(llama_cpp: Path, scene: str) -> None:
    sources = sorted((llama_cpp / "models" / "templates").glob("*.jinja"))
    rendered = refused = 0
    for path in sources:
        source = path.read_text(encoding="utf-8")
        try:
            expected = witness(source, SCENES[scene])
        except (jinja2.TemplateError, TypeError, AttributeError):
            refused += 1
            if path.stem in GENERATING and "tools" in SCENES[scene]:
                assert '"name": "get_weather"' in ours(source, SCENES[scene])
                continue
            with pytest.raises(DashInferLabError):
                ours(source, SCENES[scene])
            continue
        if "tools" in SCENES[scene] and "get_weather" not in expected:
            refused += 1
            with pytest.raises(DashInferLabError, match="no place for tools"):
                ours(source, SCENES[scene])
            continue
        rendered += 1
        assert ours(source, SCENES[scene]) == expected, path.name

    assert len(sources) == 70
    assert rendered + refused == 70
    assert rendered >= 55


ALONE = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "loops over tools, which are none",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "loops over tools, which are none",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "loops over tools, which are none",
    "fireworks-ai-llama-3-firefunction-v2": "needs functions and datetime",
}
"""Templates that do not render a plain chat, and why."""


def test_all_but_those_named_render_a_plain_chat_whole(llama_cpp: Path) -> None:
    failed: set[str] = set()
    for path in sorted((llama_cpp / "models" / "templates").glob("*.jinja")):
        try:
            text = ours(path.read_text(encoding="utf-8"), SCENES["no system"])
            assert "And the weather?" in text, path.name
        except DashInferLabError:
            failed.add(path.stem)

    assert failed == set(ALONE)


def test_chats_of_many_turns_and_of_long_texts_are_within_the_budget(llama_cpp: Path) -> None:
    long = [turn | {"content": turn["content"] + "word " * 20_000} for turn in CALLED]
    stopped: list[str] = []
    for path in sorted((llama_cpp / "models" / "templates").glob("*.jinja")):
        for messages in (CALLED * 40, long):
            try:
                ours(path.read_text(encoding="utf-8"), {"messages": messages})
            except DashInferLabError as error:  # some refuse such a chat in their own words
                stopped += [path.name] if "BudgetExceeded" in str(error) else []

    assert stopped == []


def texts(row: Sequence[Value]) -> list[str]:
    return [it if isinstance(it, str) else "" for it in row]


CONVERSATION = [
    ("system", "You are a helpful assistant"),
    ("user", "Hello"),
    ("assistant", "Hi there"),
    ("user", "Who are you"),
    ("assistant", "   I am an assistant   "),
    ("user", "Another question"),
]
REFUSING = {
    "mistralai/Mistral-7B-Instruct-v0.2 (NOTE: Old pre-v1 without a system prompt)",
    "google/gemma-7b-it",
}
"""Templates that refuse a system message in their own words; the table expects it merged."""
LEAVING_OUT = {
    "OrionStarAI/Orion-14B-Chat",
    "Phi-3-mini",
    "Phi-3-medium",
    "yandex/YandexGPT-5-Lite-8B-instruct",
}
"""Templates that leave it out in silence."""


def test_the_table_of_expected_renderings_is_met(llama_cpp: Path) -> None:
    source = (llama_cpp / "tests" / "test-chat-template.cpp").read_text(encoding="utf-8")
    start = source.index("std::vector<TestCase> test_cases {")
    rows = [row for row in parse_table(source[source.index("{", start) :]) if isinstance(row, list)]
    merged: set[str] = set()
    for row in rows:
        name, template, plain, jinja, bos, eos, _ = (texts(row) + [""] * 7)[:7]
        extra = row[7] if len(row) > 7 else []
        turns = [*CONVERSATION, *(texts(it)[:2] for it in extra if isinstance(it, list))]
        messages: list[object] = [{"role": role, "content": content} for role, content in turns]
        if name in REFUSING:
            with pytest.raises(DashInferLabError, match="put before the user's"):
                ChatTemplate(template, {"bos_token": bos, "eos_token": eos}).render(messages)
            first = f"{CONVERSATION[0][1]}\n{CONVERSATION[1][1]}"
            messages = [{"role": "user", "content": first}, *messages[2:]]
        special: dict[str, object] = {"bos_token": bos, "eos_token": eos}
        if "GigaChat" in name:
            special |= {"additional_special_tokens": ["<|role_sep|>", "<|message_sep|>", "[", "]"]}
            special["bos_token"] = "<s>"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            text = ChatTemplate(template, special).render(messages)
        if told:
            assert [it.category for it in told] == [SystemMessageWarning]
            merged.add(name)

        assert text == (jinja or plain), name
    assert len(rows) == 36
    assert merged == LEAVING_OUT
