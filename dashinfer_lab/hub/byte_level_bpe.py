"""tokenizer.json of a byte-level BPE, from its vocabulary, merges and way of splitting words.

The splits are those of the Hugging Face tokenizers, by the names that GGUF has for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dashinfer_lab.errors import CheckpointError

__all__ = ["SPLITS", "added_token", "byte_level_bpe", "merge_pairs"]

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS: dict[str, object] = {"type": "Digits", "individual_digits": True}


def _split(pattern: str) -> dict[str, object]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


SPLITS: Mapping[str, Sequence[dict[str, object]]] = {
    "gpt-2": (),
    "smollm": (_DIGITS,),
    "llama-bpe": (_split(_WORDS.format(digits=r"\p{N}{1,3}")),),
    "qwen2": (_split(_WORDS.format(digits=r"\p{N}")),),
}
"""What comes before the bytes; GPT-2's own split follows where there is no other."""

_OWN_SPLIT = ("gpt-2", "smollm")


def byte_level_bpe(
    vocab: Mapping[str, int],
    merges: Iterable[Sequence[str]],
    added_tokens: Sequence[Mapping[str, object]],
    *,
    split: str,
    add_prefix_space: bool = False,
    post_processor: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Build tokenizer.json's contents; `split` is a key of `SPLITS`."""
    byte_level: dict[str, object] = {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": split in _OWN_SPLIT,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added_tokens),
        "normalizer": {"type": "NFC"} if split == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*SPLITS[split], byte_level]},
        "post_processor": post_processor,
        "decoder": byte_level | {"add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": split == "llama-bpe",
            "vocab": dict(vocab),
            "merges": [list(pair) for pair in merges],
        },
    }


def merge_pairs(
    lines: Iterable[str], vocab: Mapping[str, int], origin: str
) -> Iterable[tuple[str, str]]:
    """Yield the two sides of each merge, "left right" a line.

    Raises CheckpointError naming `origin` for one that joins what the vocabulary lacks.
    """
    for line in lines:
        left, _, right = line.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise CheckpointError(f"{origin} merge {line!r} joins what the vocabulary lacks")
        yield left, right


def added_token(token_id: int, content: str, *, special: bool) -> dict[str, object]:
    """Return an entry of tokenizer.json's added_tokens."""
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }
