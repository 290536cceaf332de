"""A SentencePiece model stands in for a tokenizer.json, with the ids of the library itself."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.sentencepiece_files import CHATGLM_TOKENS
from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tokenizer import Tokenizer

CORPUS = [
    "hello world, hello you", "the  quick brown\tfox  12 345", "a    b     c", "你好世界 你好",
    "def f(x):\n    return x\n\n\n", "été naïve café", "ab abc abcab", "▁ lower▁line",
]  # fmt: skip
TRAINED: dict[str, dict[str, Any]] = {
    "llama": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "gemma": {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "<table>", "ab"],
    },
    "baichuan": {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "user_defined_symbols": ["<reserved_102>", "<reserved_103>", "▁▁▁"],
    },
    "normalising": {"remove_extra_whitespaces": True},
    "unigram": {
        "model_type": "unigram",
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "user_defined_symbols": ["<table>", "▁▁▁", "ab"],
    },
    "unigram, normalising": {"model_type": "unigram", "byte_fallback": False},
}


def trained(kind: str) -> bytes:
    """A tiny model with byte pieces, as the families' own are but for their size."""
    model = io.BytesIO()
    options: dict[str, Any] = {"split_digits": True, "model_type": "bpe", "byte_fallback": True}
    options |= TRAINED[kind]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 20),
        model_writer=model,
        vocab_size=380,
        num_threads=1,
        character_coverage=0.98,
        allow_whitespace_only_pieces=True,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def load(directory: Path, model: bytes, *, model_type: str = "llama", **settings: Any) -> Tokenizer:
    source, target = directory / "source", directory / "target"
    source.mkdir(parents=True)
    target.mkdir()
    (source / "tokenizer.model").write_bytes(model)
    if settings:
        (source / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    copy_tokenizer(source, {"model_type": model_type}, target)
    return Tokenizer.load(target)


Pair = tuple[Tokenizer, Any]
UNKNOWN = " \u2047 "
"""What the library shows for a character that no piece covers; ours shows nothing."""


@pytest.fixture(scope="module", params=list(TRAINED))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Ours, and the library's, from one file."""
    model = trained(request.param)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    return load(tmp_path_factory.mktemp("pieces"), model), library


PARTS = ["hello", " ", "  ", "▁", "ab", "abc", "\n", "\n\n", "\t", "12", "你好", "é", "e\u0301",
         "\U0001f642", "<0x41>", "<table>", "<reserved_102>", "ﬁ", "c"]  # fmt: skip
texts = st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cn"]), max_size=20
).filter(lambda text: not any(it in text for it in ("<s>", "</s>", "<unk>")))


@given(text=texts)
def test_ids_and_text_are_those_of_the_library(pair: Pair, text: str) -> None:
    ours, library = pair
    ids, expected = ours.encode_plain(text), library.encode(text)

    assert ids == expected or sums_are_equal(library, ids, expected)
    assert ours.decode(ids) == library.decode(ids).replace(UNKNOWN, "")


def sums_are_equal(library: Any, ids: list[int], expected: list[int]) -> bool:
    """Whether Unigram may take either: sums of 60 scores below 2^7 err by 60 · 2^-17 in floats."""
    sums = [sum(map(library.get_score, it)) for it in (ids, expected)]
    return library.decode(ids) == library.decode(expected) and abs(sums[0] - sums[1]) < 60 / 2**17


@given(text=texts)
def test_joined_deltas_are_the_decoded_text_for_every_split(pair: Pair, text: str) -> None:
    ours, _ = pair
    ids = ours.encode(text)
    for end in range(len(ids) + 1):
        decoder = ours.incremental()
        deltas = [decoder.push(token_id) for token_id in ids[:end]]

        assert "".join(deltas) + decoder.finish() == ours.decode(ids[:end])


@pytest.fixture(scope="module")
def llama() -> bytes:
    return trained("llama")


def test_bos_and_eos_are_those_of_the_model(tmp_path: Path, llama: bytes) -> None:
    ours = load(tmp_path, llama)

    assert ours.encode("hello")[0] == ours.bos_id == 1
    assert ours.eos_ids == {2}
    assert ours.encode("") == [1]
    assert ours.encode("</s>hello", add_special_tokens=False)[0] == 2


def test_a_bos_is_left_out_and_an_eos_added_where_the_settings_say_so(
    tmp_path: Path, llama: bytes
) -> None:
    ours = load(tmp_path, llama, add_bos_token=False, add_eos_token=True)

    assert [ours.encode("a")[-1], 1 in ours.encode("a")] == [2, False]


def test_tokens_of_the_settings_rename_pieces_and_follow_them(tmp_path: Path, llama: bytes) -> None:
    size = sentencepiece.SentencePieceProcessor(model_proto=llama).vocab_size()
    added = {
        str(size - 1): {"content": "<|im_start|>", "special": True},
        str(size): {"content": "<|plugin|>", "special": False},
    }
    ours = load(tmp_path, llama, added_tokens_decoder=added)

    ids = ours.encode_plain("<|im_start|>hello<|plugin|>")
    assert [ids[0], ids[-1]] == [size - 1, size]
    assert ours.decode(ids) == "hello<|plugin|>"
    assert ours.vocab_size == size + 1


@pytest.mark.parametrize("settings", [{}, {"tokenizer_class": "ChatGLMTokenizer"}], ids=["", "set"])
def test_chatglm_begins_with_its_prefix(
    tmp_path: Path, llama: bytes, settings: dict[str, str]
) -> None:
    library = sentencepiece.SentencePieceProcessor(model_proto=llama)
    ours = load(tmp_path, llama, model_type="chatglm", **settings)
    first = library.vocab_size()

    assert ours.encode("hello") == [first + 1, first + 3, *library.encode("hello")]
    assert ours.encode_plain("<|user|>\n hello<|assistant|>") == [
        first + 6, *library.encode("\n"), *library.encode("hello"), first + 7,
    ]  # fmt: skip
    assert ours.vocab_size == first + len(CHATGLM_TOKENS)
    assert ours.encode_plain("sop eop") == library.encode("sop eop")  # words, no commands


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"\xff\xff nonsense", "no SentencePiece model"),
        (b"", "without pieces"),
        (b"<!DOCTYPE html>", "no SentencePiece model"),
    ],
)
def test_a_damaged_model_is_refused(tmp_path: Path, content: bytes, named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        load(tmp_path, content)


def changed_model(model: bytes, change: Callable[[Any], object]) -> bytes:
    from sentencepiece import sentencepiece_model_pb2

    found: Any = sentencepiece_model_pb2.ModelProto()
    found.ParseFromString(model)
    change(found)
    return found.SerializeToString()


def test_models_of_words_and_characters_are_refused_by_their_type(
    tmp_path: Path, llama: bytes
) -> None:
    for kind in (3, 4):
        words = changed_model(llama, lambda it, k=kind: setattr(it.trainer_spec, "model_type", k))
        with pytest.raises(UnsupportedModelError, match=f"type {kind}"):
            load(tmp_path / str(kind), words)


def test_a_piece_of_unigram_that_is_never_given_out_is_refused(tmp_path: Path) -> None:
    model = changed_model(trained("unigram"), lambda it: setattr(it.pieces[-1], "type", 5))

    with pytest.raises(UnsupportedModelError, match="never gives out"):
        load(tmp_path, model)


def test_the_spelling_of_a_byte_is_text_to_unigram(tmp_path: Path) -> None:
    model = trained("unigram")
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = load(tmp_path, model)
    for text in ("<0x41>", "ab<0xE4><0xBD>c", "<0x4", "<<0x41>>"):
        assert ours.encode_plain(text) == library.encode(text)
        assert ours.decode(ours.encode_plain(text)) == text


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path, llama: bytes) -> None:
    (tmp_path / "elsewhere").write_bytes(llama)
    source = tmp_path / "model"
    source.mkdir()
    (source / "tokenizer.model").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CheckpointError, match="outside the model's directory"):
        copy_tokenizer(source, {}, tmp_path)
