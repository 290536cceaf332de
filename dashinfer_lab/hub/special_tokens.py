"""Tokens beside a vocabulary, and those that begin or end a sequence; encodes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.files import confined, read_json_object
from dashinfer_lab.numbers import is_whole

__all__ = ["added_token", "sequence_template", "token_content", "tokens_beside", "vocabulary_of"]


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


def sequence_template(
    before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]] = ()
) -> dict[str, object] | None:
    """Return the post-processor that puts tokens, given as (text, id), around a text."""
    if not before and not after:
        return None
    text: list[dict[str, object]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    first, last = (
        [{"SpecialToken": {"id": token, "type_id": 0}} for token, _ in ends]
        for ends in (before, after)
    )
    single = [*first, *text, *last]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            token: {"id": token, "ids": [token_id], "tokens": [token]}
            for token, token_id in (*before, *after)
        },
    }


def token_content(token: object) -> str | None:
    """Return a token's text; files give it bare or as an object with flags."""
    if isinstance(token, Mapping):
        token = cast("Mapping[str, object]", token).get("content")
    return token if isinstance(token, str) else None


def vocabulary_of(found: Mapping[str, object], path: Path) -> dict[str, int]:
    """Return tokens and ids as `path` holds them. Raises CheckpointError for what is no id."""
    for token, token_id in found.items():
        if not is_whole(token_id) or token_id < 0:
            raise CheckpointError(f"{path}: {token!r:.80} has the id {token_id!r:.80}")
    return cast("dict[str, int]", found)


def tokens_beside(source: Path, settings: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the tokens beside the vocabulary: of tokenizer_config.json, or added_tokens.json."""
    found = settings.get("added_tokens_decoder")
    if isinstance(found, Mapping):
        return _described(cast("Mapping[str, object]", found), source)
    path = confined(source, "added_tokens.json")
    ids = vocabulary_of(read_json_object(path), path) if path.is_file() else {}
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
