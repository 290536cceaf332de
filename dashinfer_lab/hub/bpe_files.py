"""tokenizer.json out of vocab.json and merges.txt, where a checkpoint brings only these.

Known are Qwen's and GPT-2's tokenizers; no code of the model is run, as the class that
tokenizer_config.json names would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.byte_level_bpe import added_token, byte_level_bpe, merge_pairs
from dashinfer_lab.hub.files import confined, read_json_object

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
    vocab = _vocabulary(read_json_object(vocab_path), vocab_path)
    merges = merge_pairs(_merge_lines(merges_path), vocab, f"{merges_path}: the")
    return byte_level_bpe(
        vocab,
        list(merges),
        _added_tokens(source, settings),
        split=split,
        add_prefix_space=settings.get("add_prefix_space") is True,
    )


def _vocabulary(found: Mapping[str, object], path: Path) -> dict[str, int]:
    for token, token_id in found.items():
        if not isinstance(token_id, int) or isinstance(token_id, bool) or token_id < 0:
            raise CheckpointError(f"{path}: {token!r:.80} has the id {token_id!r:.80}")
    return cast("dict[str, int]", found)


def _merge_lines(path: Path) -> list[str]:
    if path.stat().st_size > _MERGES_LIMIT_BYTES:
        raise CheckpointError(f"{path} is larger than {_MERGES_LIMIT_BYTES} bytes: no merges")
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is no UTF-8 text. Download it again.") from error
    lines = [line.rstrip("\r") for line in lines]
    return [line for i, line in enumerate(lines) if line and (i or not line.startswith("#version"))]


def _added_tokens(source: Path, settings: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the tokens beside the vocabulary: of tokenizer_config.json, or added_tokens.json."""
    found = settings.get("added_tokens_decoder")
    if isinstance(found, Mapping):
        return _described(cast("Mapping[str, object]", found), source)
    path = confined(source, "added_tokens.json")
    ids = _vocabulary(read_json_object(path), path) if path.is_file() else {}
    special = {str(settings.get(f"{role}_token")) for role in ("bos", "eos", "unk", "pad")}
    listed = settings.get("additional_special_tokens")
    special |= set(map(str, cast("list[object]", listed))) if isinstance(listed, list) else set()
    ordered = sorted(ids.items(), key=lambda item: item[1])
    return [added_token(i, text, special=text in special) for text, i in ordered]


def _described(found: Mapping[str, object], source: Path) -> list[dict[str, object]]:
    tokens: dict[int, dict[str, object]] = {}
    for key, entry in found.items():
        flags = cast("Mapping[str, object]", entry) if isinstance(entry, Mapping) else {}
        content = flags.get("content")
        if not (key.isascii() and key.isdecimal() and len(key) < 10 and isinstance(content, str)):
            raise CheckpointError(
                f"{source}/tokenizer_config.json: added_tokens_decoder holds {key!r:.40}: "
                f"{entry!r:.80}; expected an id and a token's content"
            )
        token = added_token(int(key), content, special=flags.get("special") is True)
        stated = ("single_word", "lstrip", "rstrip", "normalized")
        token |= {name: flags[name] for name in stated if isinstance(flags.get(name), bool)}
        tokens[int(key)] = token
    return [tokens[token_id] for token_id in sorted(tokens)]
