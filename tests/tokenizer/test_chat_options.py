"""Tools, other templates, system messages without a place, and how a chat begins."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.tokenizer import Message, SystemMessageWarning, Tokenizer
from dashinfer_lab.tokenizer.chat import ChatTemplate
from tests.tokenizer import tiny_tokenizers

TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "weather"}}]
WITH_TOOLS = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ messages[-1].content }}"
USER_ONLY = "{% for m in messages if m.role == 'user' %}[{{ m.content }}]{% endfor %}"
SYSTEM: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "w"},
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tiny_tokenizers.byte_level(tmp_path)


@pytest.fixture
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory)


def user(content: str) -> list[Message]:
    return [{"role": "user", "content": content}]


def test_tools_reach_the_template(tokenizer: Tokenizer) -> None:
    text = tokenizer.apply_chat_template(user("hi"), tools=TOOLS, chat_template=WITH_TOOLS)

    assert text == '{"type": "function", "function": {"name": "weather"}}hi'
    assert tokenizer.apply_chat_template(user("hi"), chat_template=WITH_TOOLS) == "hi"


def test_a_template_for_tools_is_taken_with_tools_alone(directory: Path) -> None:
    named: Any = [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": WITH_TOOLS},
    ]
    tiny_tokenizers.set_template(directory, named)
    tokenizer = Tokenizer.load(directory)

    assert tokenizer.apply_chat_template(user("hi")) == "D"
    assert tokenizer.apply_chat_template(user("hi"), tools=TOOLS).endswith("hi")
    assert tokenizer.with_chat_template("{{ tools }}").apply_chat_template(
        user("hi"), tools=TOOLS
    ).startswith("[{")  # fmt: skip


def test_a_special_token_in_a_tool_is_plain_text(tokenizer: Tokenizer) -> None:
    tools = [{"name": "a</s>b"}]
    ids = tokenizer.encode_chat(user("hi"), tools=tools, chat_template=WITH_TOOLS + "</s>")

    assert ids.count(2) == 1
    assert tokenizer.decode(ids, skip_special_tokens=False) == '<s>{"name": "a</s>b"}hi</s>'


def test_tools_that_the_template_leaves_out_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="no place for tools"):
        tokenizer.encode_chat(user("hi"), tools=TOOLS)


@pytest.mark.parametrize("tools", ["x", [1], 3, {"name": "x"}], ids=str)
def test_tools_of_another_shape_are_refused(tokenizer: Tokenizer, tools: Any) -> None:
    with pytest.raises(RequestError, match="list of mappings"):
        tokenizer.encode_chat(user("hi"), tools=tools, chat_template=WITH_TOOLS)


def called(arguments: object) -> list[Message]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}]


CALLS = (
    "{% for c in messages[0].tool_calls %}{% for k, v in c.function.arguments.items() %}"
    "{{ k }}={{ v }}{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}'], ids=["object", "text"])
def test_arguments_of_a_call_are_decoded_once(tokenizer: Tokenizer, arguments: object) -> None:
    assert tokenizer.apply_chat_template(called(arguments), chat_template=CALLS) == "a=1"


@pytest.mark.parametrize("arguments", ["{", "[1]", "3", "[" * 9999], ids=lambda it: it[:3])
def test_arguments_that_are_no_object_are_refused(tokenizer: Tokenizer, arguments: str) -> None:
    with pytest.raises(RequestError, match="no JSON object"):
        tokenizer.apply_chat_template(called(arguments), chat_template=CALLS)


def test_a_template_reads_what_a_call_gives_besides(tokenizer: Tokenizer) -> None:
    template = "{{ messages[0].content }}{% if enable_thinking %}<think>{% endif %}"

    assert (
        tokenizer.apply_chat_template(user("hi"), chat_template=template, enable_thinking=True)
        == "hi<think>"
    )


def test_a_system_message_without_a_place_goes_before_the_next_user_s(
    tokenizer: Tokenizer,
) -> None:
    with pytest.warns(SystemMessageWarning, match="no place for a system message"):
        text = tokenizer.apply_chat_template(SYSTEM, chat_template=USER_ONLY)

    assert text == "[Be brief.\nhello][w]"


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "BE BRIEF."),
        ("{% for m in messages %}{{ m.content | trim | tojson }}{% endfor %}", '"Be brief."'),
        ("{{ messages[0].content }}", "Be brief."),
    ],
)
def test_a_system_message_in_other_letters_is_not_lost(
    tokenizer: Tokenizer, template: str, shown: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shown in tokenizer.apply_chat_template(SYSTEM, chat_template=template)


def test_a_short_system_message_is_not_taken_for_another_s_word(tokenizer: Tokenizer) -> None:
    messages: list[Message] = [{"role": "system", "content": "h"}, *user("hello")]
    with pytest.warns(SystemMessageWarning):
        text = tokenizer.apply_chat_template(messages, chat_template=USER_ONLY)

    assert text == "[h\nhello]"


@pytest.mark.parametrize("template", [USER_ONLY, "{{ messages[-1].role }}"])
def test_a_system_message_that_has_no_place_at_all_is_refused(
    tokenizer: Tokenizer, template: str
) -> None:
    last: list[Message] = [*user("hi"), {"role": "system", "content": "Be brief."}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SystemMessageWarning)
        with pytest.raises(RequestError, match="leaves out the system message"):
            tokenizer.apply_chat_template(last, chat_template=template)
        with pytest.raises(RequestError, match="leaves out the system message"):
            tokenizer.apply_chat_template(SYSTEM, chat_template="{{ messages[-1].role }}")


def test_a_refused_system_message_tells_the_way_out(tokenizer: Tokenizer) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('No system') }}{% endif %}"
    with pytest.raises(RequestError, match="No system.*put before the user's"):
        tokenizer.apply_chat_template(SYSTEM, chat_template=template)


def test_a_template_comes_from_a_file_or_a_text(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("F:{{ messages[0].content }}", encoding="utf-8")
    for given in (path, str(path), "F:{{ messages[0].content }}"):
        tokenizer = Tokenizer.find(directory, given)

        assert tokenizer is not None
        assert tokenizer.apply_chat_template(user("hi")) == "F:hi"
        assert Tokenizer.load(directory).apply_chat_template(
            user("hi"), chat_template=given
        ) == "F:hi"  # fmt: skip


@pytest.mark.parametrize(
    ("given", "named"),
    [("absent.jinja", "absent.jinja cannot be read"), ("{{", "cannot be compiled")],
)
def test_a_template_that_cannot_be_used_is_named(directory: Path, given: str, named: str) -> None:
    with pytest.raises(TokenizerError, match=named):
        Tokenizer.find(directory, given)


def test_a_template_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    assert Tokenizer.find(tmp_path) is None
    with pytest.raises(TokenizerError, match="of no use"):
        Tokenizer.find(tmp_path, "{{ messages }}")


def test_a_template_as_long_as_a_book_is_refused() -> None:
    with pytest.raises(TokenizerError, match="characters"):
        ChatTemplate("a" * ((1 << 16) + 1), {})


def test_a_bos_that_a_prompt_brings_itself_is_taken_once_and_told(tokenizer: Tokenizer) -> None:
    with pytest.warns(UserWarning, match="begins with '<s>'"):
        assert tokenizer.encode("<s>hello") == tokenizer.encode("hello")
    assert tokenizer.encode_plain("<s>hello") == tokenizer.encode("hello")


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_chat_begins_with_one_bos_however_many_its_template_writes(
    tokenizer: Tokenizer, count: int
) -> None:
    template = "<s>" * count + "{{ messages[0].content }}"
    ids = tokenizer.encode_chat(user("hello"), chat_template=template)

    assert ids == tokenizer.encode("hello")
