"""The tokenizer.json of a checkpoint that brings another kind of file; encodes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.bpe_files import bpe_tokenizer_json
from dashinfer_lab.hub.files import confined, require_file
from dashinfer_lab.hub.sentencepiece_files import sentencepiece_tokenizer
from dashinfer_lab.hub.tiktoken_files import (
    QWEN_END,
    glm4_tokenizer_json,
    is_tiktoken_table,
    qwen_tokenizer_json,
)

__all__ = ["MadeTokenizer", "made_tokenizer"]

_TABLE_LIMIT_BYTES = 64 << 20


class MadeTokenizer(NamedTuple):
    """Contents of tokenizer.json, and of tokenizer_config.json with what was left out there."""

    content: Mapping[str, object]
    settings: Mapping[str, object]


def made_tokenizer(
    source: Path, settings: Mapping[str, object], model_type: object
) -> MadeTokenizer | None:
    """Make a tokenizer from what `source` holds; None where nothing is known.

    `settings` are those of tokenizer_config.json. Raises CheckpointError for damaged files.
    """
    made = bpe_tokenizer_json(source, settings)
    if made is not None:
        return MadeTokenizer(made, settings)
    table, model = _bounded(source, "qwen.tiktoken"), _bounded(source, "tokenizer.model")
    if table is not None:
        return MadeTokenizer(qwen_tokenizer_json(table), {"eos_token": QWEN_END, **settings})
    if model is None:
        return None
    is_chatglm = str(settings.get("tokenizer_class", model_type)).lower().startswith("chatglm")
    if not is_tiktoken_table(model):
        made = sentencepiece_tokenizer(model, source, settings, is_chatglm=is_chatglm)
        return MadeTokenizer(*made)
    if not is_chatglm:
        return None
    return MadeTokenizer(glm4_tokenizer_json(model, source, settings), settings)


def _bounded(source: Path, name: str) -> Path | None:
    path = confined(source, name)
    if not path.exists():
        return None
    require_file(path)
    if path.stat().st_size > _TABLE_LIMIT_BYTES:
        raise CheckpointError(f"{path} is larger than {_TABLE_LIMIT_BYTES} bytes: no vocabulary")
    return path
