"""tokenizer.json of a byte-level BPE, from its vocabulary, merges and way of splitting words.

The splits are those of the Hugging Face tokenizers, by the names that GGUF has for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dashinfer_lab.errors import CheckpointError

__all__ = ["CHARACTER_OF_BYTE", "SPLITS", "byte_level_bpe", "merge_pairs"]


def _character_of_byte() -> tuple[str, ...]:
    """Return GPT-2's printable characters of the 256 bytes (Radford et al. 2019, encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    shown = {byte: chr(byte) for byte in printable}
    shown |= {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return tuple(shown[byte] for byte in range(256))


CHARACTER_OF_BYTE = _character_of_byte()

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CJK = "[一-龥ࠀ-一가-퟿]+"
_CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-"
    "ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-"
    "ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
"""What DeepSeek counts as a letter with a case."""


def _split(pattern: str) -> dict[str, object]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


_DIGITS: dict[str, object] = {"type": "Digits", "individual_digits": True}
_ANY_DIGITS: dict[str, object] = {"type": "Digits", "individual_digits": False}

SPLITS: Mapping[str, Sequence[dict[str, object]]] = {
    "gpt-2": (),
    "smollm": (_DIGITS,),
    "llama-bpe": (_split(_WORDS.format(digits=r"\p{N}{1,3}")),),
    "qwen2": (_split(_WORDS.format(digits=r"\p{N}")),),
    "deepseek-coder": (
        _split(r"[\r\n]"), _split(r"\s?\p{L}+"), _split(r"\s?\p{P}+"), _split(_CJK), _DIGITS,
    ),
    "deepseek-llm": (
        _split(r"[\r\n]"),
        _split(r"\s?[" + _CASED_LETTERS + "]+"),
        _split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
        _split(r"\s+$"),
        _split(_CJK),
        _ANY_DIGITS,
    ),
    "deepseek-v3": (
        _split(r"\p{N}{1,3}"),
        _split("[一-龥぀-ゟ゠-ヿ]+"),
        _split(
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ),
}  # fmt: skip
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
    whole_words: bool | None = None,
) -> dict[str, object]:
    """Build tokenizer.json's contents; `split` is a key of `SPLITS`.

    whole_words: a word of the vocabulary is taken without merges; None takes the split's custom.
    """
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
            "ignore_merges": split == "llama-bpe" if whole_words is None else whole_words,
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
