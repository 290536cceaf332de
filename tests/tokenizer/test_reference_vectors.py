"""GGUF vocabularies give the ids that llama.cpp's repository holds for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.hub.gguf_header import read_gguf_header
from dashinfer_lab.hub.gguf_tokenizer import tokenizer_json
from dashinfer_lab.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

NAMES = ["deepseek-coder", "deepseek-llm", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3",
         "qwen2", "refact", "starcoder"]  # fmt: skip
REFUSED = {
    "bert-bge": "no decoder of ours has WordPiece",
    "command-r": "Cohere's models are not supported",
    "falcon": "Falcon is not supported",
    "gemma-4": "Gemma 4 is not supported",
    "qwen35": "Qwen 3.5 is not supported",
}


def read(models: Path, name: str, directory: Path) -> Tokenizer:
    metadata = read_gguf_header(models / f"ggml-vocab-{name}.gguf").metadata
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer_json(metadata)))
    return Tokenizer.load(directory)


def vectors(models: Path, name: str) -> list[tuple[str, list[int]]]:
    inputs = (models / f"ggml-vocab-{name}.gguf.inp").read_text(encoding="utf-8")
    outputs = (models / f"ggml-vocab-{name}.gguf.out").read_text(encoding="utf-8")
    texts = inputs.split("\n__ggml_vocab_test__\n")[:-1]  # each text ends in the mark
    ids = [[int(token_id) for token_id in line.split()] for line in outputs.splitlines()]
    return list(zip(texts, ids, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_reference(llama_cpp: Path, tmp_path: Path, name: str) -> None:
    tokenizer = read(llama_cpp / "models", name, tmp_path)
    cases = vectors(llama_cpp / "models", name)
    wrong = [(text, ids) for text, ids in cases if tokenizer.encode_plain(text) != ids]

    assert len(cases) == 46
    assert not wrong
    for text, ids in cases:
        for end in range(len(ids) + 1):
            decoder = tokenizer.incremental()
            joined = "".join(map(decoder.push, ids[:end])) + decoder.finish()

            assert joined == tokenizer.decode(ids[:end])
        assert tokenizer.decode(ids) == text


def test_json_of_llama_2_begins_without_a_space(llama_cpp: Path, tmp_path: Path) -> None:
    tokenizer = read(llama_cpp / "models", "llama-spm", tmp_path)

    assert tokenizer.decode([1, 6377]) == '{"'


def test_every_vocabulary_with_vectors_is_read_or_refused(llama_cpp: Path) -> None:
    files = (llama_cpp / "models").glob("ggml-vocab-*.gguf.out")
    found = {path.name.removeprefix("ggml-vocab-").removesuffix(".gguf.out") for path in files}

    assert found == {*NAMES, *REFUSED}


@pytest.mark.parametrize("name", REFUSED)
def test_a_vocabulary_of_no_family_here_is_refused_by_name(llama_cpp: Path, name: str) -> None:
    header = read_gguf_header(llama_cpp / "models" / f"ggml-vocab-{name}.gguf")

    with pytest.raises(UnsupportedModelError, match="is not supported"):
        tokenizer_json(header.metadata)
