"""vocab.json and merges.txt stand in for a tokenizer.json, with the same ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.byte_level_bpe import SPLITS
from dashinfer_lab.hub.gguf_tokenizer import tokenizer_json
from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tokenizer import Tokenizer as Ours

SYMBOLS = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("1", "2"), ("'", "L"),
          ("'L", "L"), ("Ġ", "Ġ"), ("Ã", "©"), ("ä", "½"), ("ä½", "ł")]  # fmt: skip
TOKENS = [*SYMBOLS, *(left + right for left, right in MERGES)]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Written as Qwen2's own class in transformers has it.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = "hello  w12 we'LL\r\n\n  cafe\u0301 <|im_end|> 你好 !?\n\n hello\t1234 \U0001f600"


def witness() -> Tokenizer:
    """The tokenizer as transformers builds it."""
    vocab = {token: index for index, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.BPE(vocab, MERGES))
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2), behavior="isolated", invert=False)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    return tokenizer


def write(directory: Path, **settings: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    vocab = {token: index for index, token in enumerate(TOKENS)}
    (directory / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES), ""]
    (directory / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    decoder = {str(len(TOKENS) + i): {"content": text, "special": True, "lstrip": False}
               for i, text in enumerate(SPECIAL)}  # fmt: skip
    described = {"added_tokens_decoder": decoder, "tokenizer_class": "Qwen2Tokenizer"}
    content = {**described, "eos_token": "<|im_end|>", **settings}
    (directory / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def loaded(source: Path, target: Path) -> Ours:
    target.mkdir()
    copy_tokenizer(source, {}, target)
    return Ours.load(target)


@pytest.mark.parametrize("name", ["Qwen2Tokenizer", "Qwen2TokenizerFast"])
def test_ids_are_those_of_the_models_own_tokenizer(tmp_path: Path, name: str) -> None:
    ours = loaded(write(tmp_path / "source", tokenizer_class=name), tmp_path / "target")

    assert ours.encode(TEXT) == witness().encode(TEXT).ids
    assert ours.decode(ours.encode(TEXT), skip_special_tokens=False) == TEXT.replace(
        "e\u0301", "\u00e9"
    )
    assert ours.eos_ids == {TOKENS.index("ä½ł") + 3}


def test_the_same_vocabulary_in_gguf_gives_the_same_ids(tmp_path: Path) -> None:
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [*TOKENS, *SPECIAL],
        "tokenizer.ggml.token_type": [1] * len(TOKENS) + [3] * len(SPECIAL),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json(metadata)))

    assert Ours.load(tmp_path).encode(TEXT) == witness().encode(TEXT).ids


@pytest.mark.parametrize("split", SPLITS)
def test_every_way_of_splitting_loads_and_comes_back(tmp_path: Path, split: str) -> None:
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json(metadata)))
    ours = Ours.load(tmp_path)

    assert ours.decode(ours.encode("hello  w123 \n 你")) == "hello  w123 \n 你"


def test_tokens_beside_the_vocabulary_may_lie_in_added_tokens_json(tmp_path: Path) -> None:
    source = write(tmp_path / "source", added_tokens_decoder=None)
    added = {text: len(TOKENS) + i for i, text in enumerate(SPECIAL)}
    (source / "added_tokens.json").write_text(json.dumps(added))
    ours = loaded(source, tmp_path / "target")

    assert ours.encode("<|im_start|><|im_end|>") == [len(TOKENS) + 1, len(TOKENS) + 2]
    assert ours.decode([len(TOKENS) + 2, 0]) == ours.token_text(0)  # eos is special, and skipped


def test_a_tokenizer_json_comes_first(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    (source / "merges.txt").write_text("nonsense")
    witness().save(str(source / "tokenizer.json"))

    assert loaded(source, tmp_path / "target").encode("hello") == [TOKENS.index("hello")]


@pytest.mark.parametrize(
    "change", [{"tokenizer_class": "QWenTokenizer"}, {"tokenizer_class": None}]
)
def test_a_class_that_is_not_known_makes_no_tokenizer(
    tmp_path: Path, change: dict[str, object]
) -> None:
    copy_tokenizer(write(tmp_path / "source", **change), {}, tmp_path)

    assert not (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("merges.txt", b"he zz", "merges.txt: the merge 'he zz' joins"),
        ("merges.txt", b"\xff\xfe", "no UTF-8 text"),
        ("vocab.json", b'{"a": -1}', "'a' has the id -1"),
        ("vocab.json", b'{"a": "1"}', "'a' has the id '1'"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "a"}}}, "'x'"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"7": {}}}, "expected an id and"),
    ],
    ids=str,
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: Any, named: str) -> None:
    source = write(tmp_path / "source", **(content if isinstance(content, dict) else {}))
    if isinstance(content, bytes):
        (source / name).write_bytes(content)

    with pytest.raises(CheckpointError, match=named):
        copy_tokenizer(source, {}, tmp_path)
