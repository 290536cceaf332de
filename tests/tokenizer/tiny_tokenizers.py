"""Tiny tokenizer directories: byte-level from GGUF, SentencePiece-like, and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from dashinfer_lab.hub import GgufCheckpoint
from tests.hub.tiny_models import write_gguf


def byte_level(directory: Path) -> Path:
    """Write the tokenizer of a tiny GGUF file: specials, 256 bytes, a few words; adds BOS."""
    directory.mkdir(parents=True, exist_ok=True)
    write_gguf(directory / "tiny.gguf")
    with GgufCheckpoint(directory / "tiny.gguf") as checkpoint:
        checkpoint.write_tokenizer(directory)
    return directory


def sentencepiece_like(directory: Path) -> Path:
    """Write a BPE tokenizer with ▁ for spaces and byte tokens, as Llama 2's; adds BOS."""
    words = ["▁", "h", "i", "hi", "▁hi", "▁▁", "a", "b", ".", "é"]
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], *words]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[("h", "i"), ("▁", "hi"), ("▁", "▁")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return save(directory, tokenizer, {"bos_token": "<s>", "eos_token": "</s>"})


def unigram(directory: Path) -> Path:
    """Write a Unigram tokenizer whose tokenizer.json is as transformers makes one; adds BOS."""
    words = ["▁", "h", "i", "hi", "▁hi", "▁▁", "a", "b", ".", "é"]
    scored = [(word, -2.0 - 0.1 * index) for index, word in enumerate(words)]
    named = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    vocab = [*((token, 0.0) for token in named), *scored]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return save(directory, tokenizer, {"bos_token": "<s>", "eos_token": "</s>"})


def words(directory: Path) -> Path:
    """Write a tokenizer of whole words, with neither decoder nor BOS."""
    vocab = {"[UNK]": 0, "one": 1, "two": 2, "three": 3}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[UNK]", "[END]"])
    return save(directory, tokenizer, {"eos_token": "[END]"})


def save(directory: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> Path:
    """Write a tokenizer and its config to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def set_template(directory: Path, template: str) -> None:
    """Put a chat template into the tokenizer's config."""
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"chat_template": template}), encoding="utf-8")
