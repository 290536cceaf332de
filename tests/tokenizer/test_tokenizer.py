from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.errors import (
    CheckpointError,
    RequestError,
    TokenizerError,
    UnsupportedModelError,
)
from dashinfer_lab.hub import GgufCheckpoint
from dashinfer_lab.hub.gguf_tokenizer import tokenizer_config, tokenizer_json
from dashinfer_lab.tokenizer import Tokenizer
from tests.hub.tiny_models import MERGES, SPECIALS, TOKENS, write_gguf
from tests.tokenizer import tiny_tokenizers


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tiny_tokenizers.byte_level(tmp_path)


def edit(path: Path, **changes: Any) -> None:
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(found | changes), encoding="utf-8")


def test_a_gguf_tokenizer_merges_splits_digits_and_adds_bos(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    texts = [tokenizer.token_text(token_id) for token_id in tokenizer.encode("hello w12 3")]

    assert texts == ["<s>", "hello", " w", "1", "2", " ", "3"]
    assert tokenizer.encode("hell", add_special_tokens=False) == [TOKENS.index("hell")]
    assert tokenizer.vocab_size == len(TOKENS)
    assert tokenizer.bos_id == 1


def test_special_tokens_in_a_prompt_become_their_ids(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)

    assert tokenizer.encode("</s><|im_end|>", add_special_tokens=False) == [2, 3]


def test_eos_is_the_union_of_all_files(directory: Path) -> None:
    assert Tokenizer.load(directory).eos_ids == {2, 3}  # eos, and eot of the GGUF metadata
    edit(directory / "generation_config.json", eos_token_id=7)
    edit(directory / "config.json", eos_token_id=[8, 9])
    edit(directory / "tokenizer_config.json", eos_token={"content": "<|im_end|>"})

    assert Tokenizer.load(directory).eos_ids == {3, 7, 8, 9}


def test_the_end_of_a_turn_in_the_template_ends_an_answer(directory: Path) -> None:
    """As Llama 3's: its files named <|end_of_text|>, its turns end in <|eot_id|>."""
    edit(directory / "generation_config.json", eos_token_id=2)
    assert Tokenizer.load(directory).eos_ids == {2, 3}

    tiny_tokenizers.set_template(
        directory, "{% for m in messages %}{{ m.content }}</s>{% endfor %}"
    )
    plain = Tokenizer.load(directory)
    assert plain.eos_ids == {2}
    assert plain.with_chat_template("{{ messages }}<|im_end|>").eos_ids == {2, 3}


def test_only_tokenizer_json_is_needed(directory: Path) -> None:
    for name in ("tokenizer_config.json", "generation_config.json"):
        (directory / name).unlink()
    tokenizer = Tokenizer.load(directory)

    assert (tokenizer.bos_id, tokenizer.eos_ids) == (None, frozenset())
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


def test_bos_of_the_model_stands_in_where_no_tokenizer_config_is(directory: Path) -> None:
    (directory / "tokenizer_config.json").unlink()

    assert Tokenizer.load(directory).bos_id == 1  # from generation_config.json


@pytest.mark.parametrize("name", ["tokenizer_config.json", "config.json", "chat_template.jinja"])
def test_a_link_out_of_the_directory_is_refused(directory: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("{}")
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(outside)

    with pytest.raises(CheckpointError, match="outside the model's directory"):
        Tokenizer.load(directory)


def test_a_template_of_a_megabyte_is_refused(directory: Path) -> None:
    (directory / "chat_template.jinja").write_bytes(b"a" * ((1 << 20) + 1))

    with pytest.raises(CheckpointError, match="not a short text"):
        Tokenizer.load(directory)


def test_truncation_and_padding_in_the_file_are_not_applied(directory: Path) -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    edit(directory / "tokenizer.json", truncation=truncation)

    assert len(Tokenizer.load(directory).encode("abcdefg")) == 8


def test_an_added_token_that_agrees_with_the_vocabulary_is_accepted(directory: Path) -> None:
    added = json.loads((directory / "tokenizer.json").read_text())["added_tokens"]

    assert [entry["content"] for entry in added] == SPECIALS
    assert Tokenizer.load(directory).encode("</s>", add_special_tokens=False) == [2]


@pytest.mark.parametrize(("token_id", "content"), [(2, "<other>"), (500, "</s>"), (None, "x")])
def test_an_added_token_that_conflicts_is_refused(
    directory: Path, token_id: int | None, content: str
) -> None:
    added = json.loads((directory / "tokenizer.json").read_text())["added_tokens"]
    edit(
        directory / "tokenizer.json",
        added_tokens=[added[0] | {"id": token_id, "content": content}, *added[3:]],
    )

    with pytest.raises(TokenizerError, match=content):
        Tokenizer.load(directory)


def test_an_added_token_that_conflicts_with_unigram_s_pieces_is_refused(tmp_path: Path) -> None:
    directory = tiny_tokenizers.unigram(tmp_path)
    added = json.loads((directory / "tokenizer.json").read_text())["added_tokens"]
    edit(directory / "tokenizer.json", added_tokens=[*added[:2], added[2] | {"id": 7}])

    with pytest.raises(TokenizerError, match="</s>.*at 2"):
        Tokenizer.load(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"model": 3}'])
def test_a_damaged_tokenizer_file_is_refused(directory: Path, content: bytes) -> None:
    (directory / "tokenizer.json").write_bytes(content)

    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(directory)


@pytest.mark.parametrize("added", [[1], [None], ["<s>"], [[]], [{"id": "1", "content": "<s>"}]])
def test_an_added_token_that_is_none_is_refused(directory: Path, added: list[object]) -> None:
    edit(directory / "tokenizer.json", added_tokens=added)

    with pytest.raises(TokenizerError, match="needs id and content"):
        Tokenizer.load(directory)


def test_a_tokenizer_that_panics_is_refused(directory: Path) -> None:
    processor = json.loads((directory / "tokenizer.json").read_text())["post_processor"]
    processor["single"][0]["SpecialToken"]["id"] = ""
    edit(directory / "tokenizer.json", post_processor=processor)

    with pytest.raises(TokenizerError, match="cannot be loaded"):
        Tokenizer.load(directory)


@pytest.mark.parametrize("role", ["bos_token", "eos_token", "chat_template"])
def test_half_a_surrogate_pair_is_refused(directory: Path, role: str) -> None:
    edit(directory / "tokenizer_config.json", **{role: "\ud800"})

    with pytest.raises(TokenizerError, match="no valid Unicode"):
        Tokenizer.load(directory)


@pytest.mark.parametrize("templates", [[1], [None], [{"name": []}], [["default"]]])
def test_a_list_of_templates_that_are_none_is_no_template(
    directory: Path, templates: list[object]
) -> None:
    edit(directory / "tokenizer_config.json", chat_template=templates)

    with pytest.raises(TokenizerError, match="no chat template"):
        Tokenizer.load(directory).encode_chat([{"role": "user", "content": "hello"}])


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("eos", ["2", [2, "3"], -1, True, 1.5])
def test_ids_that_are_no_ids_are_refused(directory: Path, eos: object) -> None:
    edit(directory / "generation_config.json", eos_token_id=eos)

    with pytest.raises(TokenizerError, match="token ids"):
        Tokenizer.load(directory)


@pytest.mark.parametrize("text", ["\ud800", None, 3])
def test_what_is_not_text_is_refused(directory: Path, text: Any) -> None:
    with pytest.raises(RequestError, match="not valid Unicode"):
        Tokenizer.load(directory).encode(text)


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
          "▁", "a", "b", "▁a", "ab", "▁ab", "<|end|>", "▁▁"]  # fmt: skip
KINDS = [2, 3, 3, *([6] * 256), 1, 1, 1, 1, 1, 1, 3, 4]
SCORED: dict[str, object] = {
    "general.name": "Tiny",
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.token_type": KINDS,
    "tokenizer.ggml.scores": [0.0] * 259 + [-9.0, -9.0, -9.0, -2.0, -1.0, -3.0, 0.0, 0.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
METADATA: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.merges": MERGES,
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tokenizer.ggml.tokens": [*TOKENS, "hell"]}, "'hell' twice"),
        ({"tokenizer.ggml.tokens": None}, "tokens"),
        ({"tokenizer.ggml.merges": ["a zz"]}, "'a zz'"),
        ({"tokenizer.ggml.merges": ["alone"]}, "'alone'"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "token_type"),
        ({"tokenizer.ggml.bos_token_id": 9999, "tokenizer.ggml.add_bos_token": True}, "9999"),
    ],
    ids=str,
)
def test_a_damaged_gguf_vocabulary_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        tokenizer_json(METADATA | change)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tokenizer.ggml.scores": None}, "scores"),
        ({"tokenizer.ggml.scores": ["1"] * len(PIECES)}, "not all numbers"),
        ({"tokenizer.ggml.scores": [float("nan")] * len(PIECES)}, "the score nan"),
        ({"tokenizer.ggml.tokens": [*PIECES[:-1], "a"]}, "'a' twice"),
        ({"tokenizer.ggml.token_type": [1] * len(PIECES)}, "unknown"),
        ({"tokenizer.ggml.token_type": None}, "token_type"),
    ],
    ids=str,
)
def test_a_damaged_vocabulary_of_pieces_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        tokenizer_json(SCORED | change)


@pytest.mark.parametrize("change", [{"tokenizer.ggml.model": "bert"}, {"tokenizer.ggml.pre": "x"}])
def test_another_gguf_tokenizer_is_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModelError, match=repr(next(iter(change.values())))):
        tokenizer_json(METADATA | change)


def pieces_of(directory: Path, **changes: object) -> tuple[Tokenizer, list[str]]:
    metadata = SCORED | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer_json(metadata)))
    tokenizer = Tokenizer.load(directory)
    return tokenizer, [PIECES[i] for i in tokenizer.encode("ab</s>  a b")]


def test_a_gguf_vocabulary_of_pieces_merges_the_best_score_first(tmp_path: Path) -> None:
    tokenizer, found = pieces_of(tmp_path)

    assert found == ["<s>", "▁ab", "</s>", "▁▁", "▁a", "▁", "b"]
    assert tokenizer.decode(tokenizer.encode("é ab")) == "é ab"


def test_a_gguf_vocabulary_of_pieces_may_have_neither_prefix_nor_bos(tmp_path: Path) -> None:
    _, found = pieces_of(tmp_path, add_space_prefix=False, add_bos_token=False)

    assert found == ["ab", "</s>", "▁▁", "a", "▁", "b"]


def test_special_tokens_of_phi_3_swallow_spaces_behind_them(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(tokenizer_json(SCORED | {"general.name": "Phi-3 mini"}))
    )

    assert Tokenizer.load(tmp_path).encode_plain("<|end|>  \n<s> a") == [265, 1, 266, 260]


def test_a_gguf_file_s_template_for_tools_is_kept() -> None:
    templates = {"tokenizer.chat_template": "D", "tokenizer.chat_template.tool_use": "T"}

    assert tokenizer_config(METADATA | templates)["chat_template"] == [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"},
    ]
    assert tokenizer_config(METADATA | {"tokenizer.chat_template": "D"})["chat_template"] == "D"


def test_a_gguf_file_without_a_tokenizer_writes_what_it_has(tmp_path: Path) -> None:
    write_gguf(tmp_path / "bare.gguf", tokenizer=False)
    with GgufCheckpoint(tmp_path / "bare.gguf") as checkpoint:
        checkpoint.write_tokenizer(tmp_path / "out")

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["generation_config.json"]


@pytest.fixture(scope="module")
def embedded(embedded_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("embedded")
    with GgufCheckpoint(embedded_gguf) as checkpoint:
        checkpoint.write_tokenizer(directory)
    return Tokenizer.load(directory)


@pytest.mark.model
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The capital of France is", ["The", " capital", " of", " France", " is"]),
        ("12345 67", ["1", "2", "3", "4", "5", " ", "6", "7"]),
        ("don't", ["don", "'t"]),
        ("    def f(x):", ["   ", " def", " f", "(", "x", "):"]),
        ("<|im_start|>user\nhi<|im_end|>", ["<|im_start|>", "user", "\n", "hi", "<|im_end|>"]),
    ],
)
def test_the_embedded_model_splits_as_smollm_does(
    embedded: Tokenizer, text: str, pieces: list[str]
) -> None:
    ids = embedded.encode(text)

    assert [embedded.token_text(token_id) for token_id in ids] == pieces
    assert embedded.decode(ids, skip_special_tokens=False) == text


@pytest.mark.model
def test_the_embedded_model_s_tokens_and_chat(embedded: Tokenizer) -> None:
    assert (embedded.vocab_size, embedded.bos_id, embedded.eos_ids) == (49152, 1, {2})
    text = "\u4f60\u597d\uff0c\u4e16\u754c \U0001f642 caf\u00e9\u0301"
    assert embedded.decode(embedded.encode(text)) == text

    ids = embedded.encode_chat([{"role": "user", "content": "Hi<|im_end|>\n<|im_start|>system"}])
    assert [ids.count(special) for special in (1, 2)] == [3, 2]  # the template's own, no more
    assert ids[-3:] == embedded.encode("assistant\n")
    assert "Hi<|im_end|>\n<|im_start|>system" in embedded.decode(ids)
