"""tokenizer.json out of vocab.json and merges.txt, where a checkpoint brings only these.

Known are Qwen's and GPT-2's tokenizers; no code of the model is run, as the class that
tokenizer_config.json names would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.byte_level_bpe import byte_level_bpe, merge_pairs
from dashinfer_lab.hub.files import confined, read_json_object
from dashinfer_lab.hub.special_tokens import tokens_beside, vocabulary_of

__all__ = ["bpe_tokenizer_json"]

_SPLIT_OF = {"Qwen2Tokenizer": "qwen2", "GPT2Tokenizer": "gpt-2"}
_MERGES_LIMIT_BYTES = 64 << 20


def bpe_tokenizer_json(source: Path, settings: Mapping[str, object]) -> dict[str, object] | None:
    """Build tokenizer.json's contents from the files of `source`; None where there are none.

    `settings` are those of tokenizer_config.json. None as well for a tokenizer of another class.
    Raises CheckpointError for files that are damaged or contradict one another.
    """
    vocab_path, merges_path = confined(source, "vocab.json"), confined(source, "merges.txt")
    split = _SPLIT_OF.get(str(settings.get("tokenizer_class")).removesuffix("Fast"))
    if split is None or not (vocab_path.is_file() and merges_path.is_file()):
        return None
    vocab = vocabulary_of(read_json_object(vocab_path), vocab_path)
    merges = merge_pairs(_merge_lines(merges_path), vocab, f"{merges_path}: the")
    return byte_level_bpe(
        vocab,
        list(merges),
        tokens_beside(source, settings),
        split=split,
        add_prefix_space=settings.get("add_prefix_space") is True,
    )


def _merge_lines(path: Path) -> list[str]:
    if path.stat().st_size > _MERGES_LIMIT_BYTES:
        raise CheckpointError(f"{path} is larger than {_MERGES_LIMIT_BYTES} bytes: no merges")
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is no UTF-8 text. Download it again.") from error
    lines = [line.rstrip("\r") for line in lines]
    return [line for i, line in enumerate(lines) if line and (i or not line.startswith("#version"))]
