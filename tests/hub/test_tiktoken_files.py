"""A table of tiktoken stands in for a tokenizer.json; the ids are those of its own algorithm."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tokenizer import Tokenizer

WORDS = ["he", "ll", "hell", "hello", "lo", " w", "or", "wor", " wor", "你".encode(), b"\xbd\xa0",
         b"\xe4\xbd", "aa", "aaa", "aab", "ab", "  ", "    ", "12", "123"]  # fmt: skip
TABLE = [bytes([byte]) for byte in range(256)]
TABLE += [word if isinstance(word, bytes) else word.encode() for word in WORDS]
RANKS = {word: rank for rank, word in enumerate(TABLE)}
FIRST = len(TABLE)
GLM4_PREFIX = "[gMASK]<sop>"


def merged(word: bytes) -> list[int]:
    """The ids of a word by tiktoken's definition: whole, or the lowest pair joined first."""
    if word in RANKS:
        return [RANKS[word]]
    parts = [bytes([byte]) for byte in word]
    while True:
        pairs = [(RANKS.get(a + b, FIRST), i) for i, (a, b) in enumerate(pairwise(parts))]
        rank, place = min(pairs, default=(FIRST, 0))
        if rank == FIRST:
            return [RANKS[part] for part in parts]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


def write(directory: Path, name: str, table: list[bytes], **settings: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(table)]
    (directory / name).write_bytes(b"".join(lines))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return directory


def load(source: Path, model_type: str = "qwen") -> Tokenizer:
    target = source / "target"
    target.mkdir()
    copy_tokenizer(source, {"model_type": model_type}, target)
    return Tokenizer.load(target)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("qwen")
    return load(write(directory, "qwen.tiktoken", TABLE, tokenizer_class="QWenTokenizer"))


@pytest.fixture(scope="module")
def glm4(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("glm4")
    written = write(directory, "tokenizer.model", TABLE, tokenizer_class="ChatGLM4Tokenizer")
    return load(written, "chatglm")


@given(letters=st.text("helo wra你", max_size=12).map(str.strip))
def test_words_are_joined_as_tiktoken_does(qwen: Tokenizer, letters: str) -> None:
    words = letters.split()
    pieces = [word if i == 0 else " " + word for i, word in enumerate(words)]

    expected = [token_id for piece in pieces for token_id in merged(piece.encode())]
    assert qwen.encode(" ".join(words)) == expected


@given(text=st.text(st.characters(codec="utf-8"), max_size=20))
@example(text="[MASK]")
@example(text=GLM4_PREFIX)
@example(text="<|user|> a<|endoftext|>")
def test_any_text_comes_back_and_streams(qwen: Tokenizer, glm4: Tokenizer, text: str) -> None:
    for tokenizer in (qwen, glm4):
        ids = tokenizer.encode(text)
        for end in range(len(ids) + 1):
            decoder = tokenizer.incremental()
            deltas = [decoder.push(token_id) for token_id in ids[:end]]

            assert "".join(deltas) + decoder.finish() == tokenizer.decode(ids[:end])
    written = glm4.decode(glm4.encode(text), skip_special_tokens=False)
    assert written == GLM4_PREFIX + text  # special tokens spelled in it included


def test_qwen_s_special_tokens_follow_the_table(qwen: Tokenizer) -> None:
    assert qwen.encode("<|endoftext|><|im_start|><|im_end|><|extra_204|>") == [
        FIRST, FIRST + 1, FIRST + 2, FIRST + 207,
    ]  # fmt: skip
    assert FIRST in qwen.eos_ids
    assert qwen.encode("123") == [RANKS[bytes([digit])] for digit in b"123"]  # one by one


def test_glm4_begins_with_its_prefix_and_takes_three_digits(glm4: Tokenizer) -> None:
    assert glm4.encode("123") == [FIRST + 2, FIRST + 4, RANKS[b"123"]]
    assert glm4.encode_plain("<|user|>\n") == [FIRST + 7, RANKS[b"\n"]]


def test_glm4_s_tokens_are_those_of_its_settings(tmp_path: Path) -> None:
    names = ["<|endoftext|>", "[gMASK]", "<sop>"]
    added = {str(FIRST + i): {"content": it, "special": True} for i, it in enumerate(names)}
    source = write(tmp_path, "tokenizer.model", TABLE, added_tokens_decoder=added)

    assert load(source, "chatglm").encode("a") == [FIRST + 1, FIRST + 2, RANKS[b"a"]]


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (TABLE[1:], "lacks single bytes"),
        ([*TABLE, b"hello"], "line 277"),
        ([*TABLE, b""], "line 277"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, table: list[bytes], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        load(write(tmp_path, "qwen.tiktoken", table))


@pytest.mark.parametrize("line", [b"aGVsbG8= x\n", b"%%% 276\n", b"aGVsbG8=\n", b"aGVs 300\n"])
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: bytes) -> None:
    source = write(tmp_path, "qwen.tiktoken", TABLE)
    path = source / "qwen.tiktoken"
    path.write_bytes(path.read_bytes() + line)

    with pytest.raises(CheckpointError, match="line 277"):
        load(source)


def test_a_table_of_another_model_makes_no_tokenizer(tmp_path: Path) -> None:
    source = write(tmp_path, "tokenizer.model", TABLE, tokenizer_class="OtherTokenizer")
    copy_tokenizer(source, {"model_type": "llama"}, tmp_path)

    assert not (tmp_path / "tokenizer.json").exists()
