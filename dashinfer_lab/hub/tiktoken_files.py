"""tokenizer.json out of a table of tiktoken: Qwen's (the first) and GLM-4's; runs no code of them.

A word is cut into bytes, and the pair whose bytes have the lowest rank is joined first, as tiktoken
does; a word of the table is taken whole.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.byte_level_bpe import CHARACTER_OF_BYTE, byte_level_bpe
from dashinfer_lab.hub.special_tokens import added_token, sequence_template, tokens_beside

__all__ = ["QWEN_END", "glm4_tokenizer_json", "is_tiktoken_table", "qwen_tokenizer_json"]

_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d{1,9}\s")
QWEN_END = "<|endoftext|>"
_EXTRAS = tuple(f"<|extra_{i}|>" for i in range(205))
_QWEN_TOKENS = (QWEN_END, "<|im_start|>", "<|im_end|>", *_EXTRAS)
_GLM4_TOKENS = (
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>",
    "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
    "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>",
)  # fmt: skip
_GLM4_PREFIX = ("[gMASK]", "<sop>")


def is_tiktoken_table(path: Path) -> bool:
    """Whether the file begins as a table does: base64, a space, a rank."""
    with path.open("rb") as file:
        return _LINE.match(file.read(1024)) is not None


def qwen_tokenizer_json(path: Path) -> dict[str, object]:
    """Build tokenizer.json's contents from qwen.tiktoken. Raises CheckpointError."""
    ranks = _ranks(path)
    added = [added_token(len(ranks) + i, text, special=True) for i, text in enumerate(_QWEN_TOKENS)]
    return _tokenizer(ranks, added, split="qwen2", ends=None)


def glm4_tokenizer_json(
    path: Path, source: Path, settings: Mapping[str, object]
) -> dict[str, object]:
    """Build tokenizer.json's contents from GLM-4's tokenizer.model. Raises CheckpointError."""
    ranks = _ranks(path)
    added = tokens_beside(source, settings) or [
        added_token(len(ranks) + i, text, special=True) for i, text in enumerate(_GLM4_TOKENS)
    ]
    ids = {str(token["content"]): int(str(token["id"])) for token in added}
    absent = [text for text in _GLM4_PREFIX if text not in ids]
    if absent:
        raise CheckpointError(f"{source}/tokenizer_config.json lacks GLM-4's token {absent[0]!r}")
    ends = sequence_template([(text, ids[text]) for text in _GLM4_PREFIX])
    return _tokenizer(ranks, added, split="llama-bpe", ends=ends)


def _tokenizer(
    ranks: Mapping[str, int],
    added: list[dict[str, object]],
    *,
    split: str,
    ends: Mapping[str, object] | None,
) -> dict[str, object]:
    ranked = [
        (rank, ranks[token[:cut]], token[:cut], token[cut:])
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    merges = [(left, right) for _, _, left, right in sorted(ranked)]
    return byte_level_bpe(ranks, merges, added, split=split, post_processor=ends, whole_words=True)


def _ranks(path: Path) -> dict[str, int]:
    """Read the table; bytes are written as GPT-2's characters."""
    ranks: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        word, _, rank = line.partition(b" ")
        try:
            content = base64.b64decode(word, validate=True)
            token = "".join(CHARACTER_OF_BYTE[byte] for byte in content)
            if not content or token in ranks or int(rank) != len(ranks):
                raise ValueError("ranks follow one another, and no word comes twice")
        except (ValueError, binascii.Error) as error:
            raise CheckpointError(
                f"{path}, line {number}: {line!r:.80} is no word in base64 and its rank: {error}. "
                "Download it again."
            ) from error
        ranks[token] = int(rank)
    if any(character not in ranks for character in CHARACTER_OF_BYTE):
        raise CheckpointError(f"{path} lacks single bytes. Download it again.")
    return ranks
