from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from dashinfer_lab.tokenizer import Tokenizer
from tests.tokenizer import tiny_tokenizers

MAKERS: dict[str, Callable[[Path], Path]] = {
    "byte level": tiny_tokenizers.byte_level,
    "sentencepiece": tiny_tokenizers.sentencepiece_like,
    "unigram": tiny_tokenizers.unigram,
    "words": tiny_tokenizers.words,
}
Loaded = tuple[Tokenizer, tokenizers.Tokenizer]


@pytest.fixture(scope="module", params=list(MAKERS))
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Our tokenizer and the library's, from the same files."""
    directory = MAKERS[request.param](tmp_path_factory.mktemp("tokenizer"))
    return Tokenizer.load(directory), tokenizers.Tokenizer.from_file(
        str(directory / "tokenizer.json")
    )


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizers.byte_level(tmp_path_factory.mktemp("bytes")))


def deltas(tokenizer: Tokenizer, ids: Sequence[int], *, skip: bool = True) -> list[str]:
    decoder = tokenizer.incremental(skip_special_tokens=skip)
    return [*(decoder.push(token_id) for token_id in ids), decoder.finish()]


any_ids = st.lists(st.integers(0, 290), max_size=40)


@given(ids=any_ids, skip=st.booleans())
def test_joined_deltas_are_the_decoded_text_for_every_prefix(
    loaded: Loaded, ids: list[int], skip: bool
) -> None:
    tokenizer, _ = loaded
    for end in range(len(ids) + 1):
        joined = "".join(deltas(tokenizer, ids[:end], skip=skip))

        assert joined == tokenizer.decode(ids[:end], skip_special_tokens=skip)


@given(ids=st.lists(st.integers(0, 400), max_size=60), skip=st.booleans())
def test_byte_level_text_is_the_library_s_for_any_ids(
    byte_level: Tokenizer, ids: list[int], skip: bool
) -> None:
    library = byte_level._tokenizer

    expected = library.decode(ids, skip_special_tokens=skip)
    assert byte_level.decode(ids, skip_special_tokens=skip) == expected


@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
@example(text="<s>")
@example(text="<s>a</s> b<unk>")
def test_text_comes_back_as_the_library_gives_it(loaded: Loaded, text: str) -> None:
    tokenizer, library = loaded
    ids = tokenizer.encode_plain(text)

    assert ids == library.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == library.decode(ids)


FAMILY, FLAG = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e8\U0001f1f3"
PIECES = [
    "hi",
    " ",
    "  ",
    "a.b",
    "\u00e9",
    "e\u0301",
    "\u4f60\u597d",
    "\n",
    FAMILY,
    FLAG,
    "</s>",
    "<think>",
]


@given(parts=st.lists(st.sampled_from(PIECES), max_size=12))
def test_tokens_put_between_are_skipped_or_shown_and_break_no_character(
    loaded: Loaded, parts: list[str]
) -> None:
    tokenizer, library = loaded
    ids = tokenizer.encode_plain("".join(parts))
    spelled = deltas(tokenizer, ids)

    assert "".join(spelled) == library.decode(ids)
    assert not any("\ufffd" in delta for delta in spelled)


@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
def test_no_delta_holds_a_broken_character(byte_level: Tokenizer, text: str) -> None:
    ids = byte_level.encode(text, add_special_tokens=False)
    pieces = deltas(byte_level, ids, skip=False)

    assert "".join(pieces) == text
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")


@pytest.mark.parametrize(
    "text",
    [
        "a    b",
        " lead",
        "hello w\u00e9 \U0001f642\U0001f468\u200d\U0001f469",
        "\u4f60\u597d\n\t12345",
    ],
)
def test_spaces_emoji_and_chinese_are_exact(byte_level: Tokenizer, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text)) == text


def test_a_character_cut_at_the_end_is_flushed_once(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a\U0001f642", add_special_tokens=False)
    decoder = byte_level.incremental()
    pushed = [decoder.push(token_id) for token_id in ids[:-1]]

    assert pushed == ["a", "", "", ""]
    assert decoder.finish() == "\ufffd"
    assert decoder.finish() == ""


def test_spaces_between_tokens_survive_token_by_token(tmp_path: Path) -> None:
    directory = tiny_tokenizers.sentencepiece_like(tmp_path)
    tokenizer = Tokenizer.load(directory)
    space, word = (tokenizer._tokenizer.token_to_id(token) for token in ("\u2581", "\u2581hi"))

    assert deltas(tokenizer, [word, word, word]) == ["hi", " hi", " hi", ""]
    assert deltas(tokenizer, [space, word]) == ["", " hi", ""]


def test_a_token_without_a_space_gets_none_after_bos(tmp_path: Path) -> None:
    """As Llama 2's 1, 6377: `{"`."""
    tokenizer = Tokenizer.load(tiny_tokenizers.sentencepiece_like(tmp_path))
    word = tokenizer._tokenizer.token_to_id("hi")

    assert deltas(tokenizer, [1, word, word]) == ["", "hi", "hi", ""]
    assert tokenizer.decode([1, word], skip_special_tokens=False) == "<s>hi"


def test_added_tokens_are_shown_as_they_are(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizers.sentencepiece_like(tmp_path))
    think, word = (tokenizer._tokenizer.token_to_id(token) for token in ("<think>", "\u2581hi"))

    assert tokenizer.decode([word, think, word, 2]) == "hi<think> hi"
    assert tokenizer.decode([word, 2], skip_special_tokens=False) == "hi</s>"


def test_a_byte_run_keeps_its_whole_characters(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizers.sentencepiece_like(tmp_path))
    byte_ids = [3 + byte for byte in "\u4f60".encode()]

    assert deltas(tokenizer, byte_ids) == ["", "", "\u4f60", ""]
    assert tokenizer.decode([*byte_ids, *byte_ids[:2]]) == "\u4f60\ufffd"


@pytest.mark.parametrize("token_id", [291, 292, 49152, 1 << 31])
def test_ids_beyond_the_vocabulary_add_nothing(byte_level: Tokenizer, token_id: int) -> None:
    ids = byte_level.encode("\u4f60", add_special_tokens=False)

    assert byte_level.decode([ids[0], token_id, *ids[1:], token_id]) == "\u4f60"
    assert byte_level.token_text(token_id) == ""


def test_the_work_per_token_does_not_grow(byte_level: Tokenizer) -> None:
    spelled = 0

    class Counting:
        def start(self, token_id: int) -> bytes:
            return self.middle(token_id)

        def middle(self, token_id: int) -> bytes:
            nonlocal spelled
            spelled += 1
            return byte_level.token_bytes(token_id)

    from dashinfer_lab.tokenizer import IncrementalDecoder

    decoder = IncrementalDecoder(Counting())
    longest_wait = 0
    for count in range(1, 2001):
        decoder.push(200)
        longest_wait = max(longest_wait, len(decoder._characters.getstate()[0]))

        assert spelled == count
    assert longest_wait <= 3  # a character has at most four bytes


def test_the_text_of_a_token_keeps_its_space(tmp_path: Path, byte_level: Tokenizer) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizers.sentencepiece_like(tmp_path))

    assert tokenizer.token_text(tokenizer._tokenizer.token_to_id("\u2581hi")) == " hi"
    assert tokenizer.token_bytes(3 + 0xE4) == b"\xe4"
    assert byte_level.token_text(byte_level._tokenizer.token_to_id("\u0120w")) == " w"
