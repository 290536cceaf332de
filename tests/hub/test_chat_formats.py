"""A family whose files hold no chat template speaks in its documented format, and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tokenizer import Message, SystemMessageWarning, Tokenizer
from tests.hub import test_sentencepiece_files as sentencepiece_files
from tests.hub import test_tiktoken_files as tiktoken_files

CHAT: list[Message] = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "ab"},
    {"role": "user", "content": "you"},
]


def load(source: Path, config: dict[str, object], **generation: object) -> Tokenizer:
    (source / "generation_config.json").write_text(json.dumps(generation))
    target = source / "target"
    target.mkdir()
    copy_tokenizer(source, config, target)
    return Tokenizer.load(target)


def pieces(directory: Path, *, kind: str = "llama", **settings: Any) -> Path:
    (directory / "tokenizer.model").write_bytes(sentencepiece_files.trained(kind))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def test_qwen_speaks_chatml_and_ends_at_its_marks(tmp_path: Path) -> None:
    source = tiktoken_files.write(tmp_path, "qwen.tiktoken", tiktoken_files.TABLE)
    tokenizer = load(source, {"model_type": "qwen"}, chat_format="chatml", eos_token_id=276)

    assert tokenizer.built_in_format == "ChatML"
    assert tokenizer.apply_chat_template(CHAT[:1]) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.eos_ids == {276, 277, 278}


def test_a_base_model_has_no_format(tmp_path: Path) -> None:
    source = tiktoken_files.write(tmp_path, "qwen.tiktoken", tiktoken_files.TABLE)
    tokenizer = load(source, {"model_type": "qwen"}, chat_format="raw")

    assert (tokenizer.has_chat_template, tokenizer.built_in_format) == (False, None)


def test_chatglm_3_has_a_space_behind_the_line_and_ends_at_roles(tmp_path: Path) -> None:
    source = pieces(tmp_path, tokenizer_class="ChatGLMTokenizer")
    tokenizer = load(source, {"model_type": "chatglm"}, eos_token_id=2)
    messages: list[Message] = [{"role": "system", "content": "You"}, *CHAT]

    assert tokenizer.built_in_format == "ChatGLM 3's roles"
    assert tokenizer.apply_chat_template(messages) == (
        "[gMASK]<sop><|system|>\n You<|user|>\n hello<|assistant|>\n ab<|user|>\n you<|assistant|>"
    )
    first = tokenizer.vocab_size - 9
    assert tokenizer.eos_ids == {2, first + 6, first + 8}
    ids = tokenizer.encode_chat(CHAT[:1])
    assert ids[:3] == [first + 1, first + 3, first + 6]
    assert ids[3:-1] == [*tokenizer.encode_plain("\n"), *tokenizer.encode_plain("hello")]
    assert ids[-1] == first + 7


def test_the_prefix_in_chatglm_3_s_own_template_is_respelled(tmp_path: Path) -> None:
    source = pieces(
        tmp_path,
        tokenizer_class="ChatGLMTokenizer",
        chat_template="[gMASK]sop<|user|>\n {{ messages[0]['content'] }}",
    )
    tokenizer = load(source, {"model_type": "chatglm"})

    assert tokenizer.built_in_format is None
    assert tokenizer.encode_chat(CHAT[:1])[:2] == tokenizer.encode("")


def test_chatglm_2_counts_rounds_and_puts_a_system_message_into_the_first(tmp_path: Path) -> None:
    source = pieces(tmp_path, tokenizer_class="ChatGLMTokenizer")
    tokenizer = load(source, {"model_type": "chatglm", "_name_or_path": "x/chatglm2-6b"})

    rounds = "[Round 1]\n\n问：{}hello\n\n答：ab\n\n[Round 2]\n\n问：you\n\n答："
    assert tokenizer.apply_chat_template(CHAT) == "[gMASK]<sop>" + rounds.format("")
    with pytest.warns(SystemMessageWarning, match="no place for a system message"):
        text = tokenizer.apply_chat_template([{"role": "system", "content": "Be brief"}, *CHAT])
    assert text == "[gMASK]<sop>" + rounds.format("Be brief\n")


def test_glm_4_has_no_space_behind_the_line(tmp_path: Path) -> None:
    source = tiktoken_files.write(tmp_path, "tokenizer.model", tiktoken_files.TABLE)
    tokenizer = load(source, {"model_type": "chatglm"}, eos_token_id=[276])

    assert tokenizer.apply_chat_template(CHAT[:1]) == "[gMASK]<sop><|user|>\nhello<|assistant|>"
    assert tokenizer.encode_chat(CHAT[:1])[:3] == [278, 280, 283]
    assert tokenizer.eos_ids == {276, 283, 285}


@pytest.mark.parametrize(("vocab_size", "expected"), [
    (64000, "<reserved_102>hello<reserved_103>ab</s><reserved_102>you<reserved_103>"),
    (125696, "<reserved_102>hello<reserved_103>ab<reserved_102>you<reserved_103>"),
])  # fmt: skip
def test_baichuan_s_roles_are_those_of_its_generation_config(
    tmp_path: Path, vocab_size: int, expected: str
) -> None:
    source = pieces(tmp_path, kind="baichuan", add_bos_token=False)
    config: dict[str, object] = {"model_type": "Baichuan_v2", "vocab_size": vocab_size}
    tokenizer = load(source, config, user_token_id=3, assistant_token_id=4)

    assert tokenizer.apply_chat_template(CHAT) == expected
    assert tokenizer.encode_chat(CHAT)[0] == 3


def test_internlm_2_speaks_chatml_after_its_bos(tmp_path: Path) -> None:
    added = {str(379): {"content": "<|im_start|>", "special": True},
             str(378): {"content": "<|im_end|>", "special": True}}  # fmt: skip
    source = pieces(tmp_path, added_tokens_decoder=added)
    tokenizer = load(source, {"model_type": "internlm2"}, eos_token_id=2)

    assert tokenizer.apply_chat_template(CHAT[:1]) == (
        "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.encode_chat(CHAT[:1])
    assert (ids[:2], ids.count(1)) == ([1, 379], 1)
    assert 378 in tokenizer.eos_ids


def test_a_template_of_the_files_comes_first(tmp_path: Path) -> None:
    source = tiktoken_files.write(tmp_path, "qwen.tiktoken", tiktoken_files.TABLE)
    (source / "chat_template.jinja").write_text("own")
    tokenizer = load(source, {"model_type": "qwen"}, chat_format="chatml")

    assert tokenizer.apply_chat_template(CHAT) == "own"
    assert (tokenizer.built_in_format, tokenizer.eos_ids) == (None, {276, 277, 278})
