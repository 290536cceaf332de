"""The tokenizer files of a model's directory, read and checked; encodes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dashinfer_lab.errors import TokenizerError
from dashinfer_lab.hub.files import confined, read_bounded_text
from dashinfer_lab.numbers import is_whole

__all__ = ["TokenizerDefinition", "read_definition"]

_SIZE_LIMIT_BYTES = 256 << 20
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


@dataclass(frozen=True, slots=True)
class TokenizerDefinition:
    """What the files say. Token ids may lie beyond the vocabulary; texts may not be in it."""

    directory: Path
    decoder: object
    """tokenizer.json's decoder, as written there."""
    has_byte_tokens: bool
    """Whether tokens such as <0xE4> stand for single bytes."""
    special_tokens: Mapping[str, str]
    """Texts by role, such as "bos_token"."""
    additional_special_tokens: tuple[str, ...]
    bos_id: int | None
    """The model's BOS where no tokenizer_config.json names the tokenizer's."""
    eos_ids: frozenset[int]
    """Ends of an answer by config.json and generation_config.json."""
    chat_template: str | None
    template_origin: str | None = None
    """Name of the family's own chat format, where its files hold no template."""
    tool_template: str | None = None
    """The template of a chat with tools, where it is another."""


def read_definition(directory: Path) -> TokenizerDefinition:
    """Read the files of `directory`; only tokenizer.json must be there.

    Raises TokenizerError, CheckpointError for a link out of the directory.
    """
    if not (directory / "tokenizer.json").is_file():
        raise TokenizerError(
            f"{directory} holds no tokenizer.json. Add the model's own, or use "
            "prompt_token_ids, which need no tokenizer."
        )
    tokenizer = _read_object(confined(directory, "tokenizer.json"))
    model = tokenizer.get("model")
    model = cast("dict[str, object]", model) if isinstance(model, dict) else {}
    _check_added_tokens(directory, model.get("vocab"), tokenizer.get("added_tokens"))
    config_path = confined(directory, "tokenizer_config.json")
    has_config = config_path.is_file()
    config = _read_object(config_path) if has_config else {}
    model_configs = [
        _read_object(path)
        for name in ("generation_config.json", "config.json")
        if (path := confined(directory, name)).is_file()
    ]
    bos_ids = [_ids(found.get("bos_token_id"), directory) for found in model_configs]
    first_bos = next((ids[0] for ids in bos_ids if ids), None)
    additional = config.get("additional_special_tokens") or config.get("extra_special_tokens")
    named, others = dict(_named_tokens(config)), tuple(_texts(additional))
    template, for_tools = _chat_templates(directory, config)
    _check_unicode(directory, [*named.values(), *others, template or "", for_tools or ""])
    return TokenizerDefinition(
        directory,
        tokenizer.get("decoder"),
        bool(model.get("byte_fallback")),
        named,
        others,
        None if has_config else first_bos,
        frozenset(i for found in model_configs for i in _ids(found.get("eos_token_id"), directory)),
        template,
        _text(config.get("chat_template_origin")),
        for_tools,
    )


def _read_object(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_size > _SIZE_LIMIT_BYTES:
            raise TokenizerError(f"{path} is larger than {_SIZE_LIMIT_BYTES} bytes")
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}. Download it again.") from error
    if not isinstance(parsed, dict):
        raise TokenizerError(f"{path} holds a {type(parsed).__name__}, not a JSON object")
    return cast("dict[str, object]", parsed)


def _mapping(value: object) -> Mapping[str, object]:
    """Return a JSON object, or an empty one for anything else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _check_unicode(directory: Path, texts: Iterable[str]) -> None:
    """Refuse half a surrogate pair: JSON can spell one, a tokenizer cannot take it."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"{directory}: {text!r:.80} in tokenizer_config.json is no valid Unicode text. "
                "Download it again."
            ) from error


def _named_tokens(config: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    for role in _NAMED_TOKENS:
        text = _text(config.get(role))
        if text is not None:
            yield role, text


def _text(token: object) -> str | None:
    """Return a token's text; files give it bare or as an object with flags."""
    if isinstance(token, dict):
        token = cast("dict[str, object]", token).get("content")
    return token if isinstance(token, str) else None


def _texts(tokens: object) -> Iterable[str]:
    listed: Iterable[object] = ()
    if isinstance(tokens, dict):
        listed = cast("dict[str, object]", tokens).values()
    elif isinstance(tokens, list):
        listed = cast("list[object]", tokens)
    return [text for text in map(_text, listed) if text is not None]


def _ids(value: object, directory: Path) -> list[int]:
    """Return token ids given as none, one or a list."""
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    ids = [i for i in listed if is_whole(i) and i >= 0]
    if value is not None and len(ids) != len(listed):
        raise TokenizerError(f"{directory}: {value!r} given as token ids; expected integers >= 0")
    return ids


def _chat_templates(directory: Path, config: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Return the template named "default" or the only one, and the one for tools, if any.

    A file of its own comes first, and is both.
    """
    path = confined(directory, "chat_template.jinja")
    if path.is_file():
        return read_bounded_text(path), None
    found = config.get("chat_template")
    for_tools: object = None
    if isinstance(found, list):
        entries = [_mapping(entry) for entry in cast("list[object]", found)]
        named = {str(entry.get("name")): entry.get("template") for entry in entries}
        for_tools = named.get("tool_use")
        found = named.get("default", next(iter(named.values()), None))
    return _template_text(directory, found), _template_text(directory, for_tools)


def _template_text(directory: Path, found: object) -> str | None:
    if found is not None and not isinstance(found, str):
        raise TokenizerError(f"{directory}: chat_template is a {type(found).__name__}, not text")
    return found


def _check_added_tokens(directory: Path, vocab: object, added: object) -> None:
    """Refuse an added token whose id or text says otherwise than the base vocabulary."""
    if isinstance(vocab, list):  # Unigram's pieces with scores, in the order of their ids
        listed = cast("list[object]", vocab)
        pieces = [cast("list[object]", it) if isinstance(it, list) else [it] for it in listed]
        vocab = {str(piece[0]): i for i, piece in enumerate(pieces) if piece}
    if not isinstance(vocab, dict) or not isinstance(added, list):
        return
    id_of = cast("dict[str, object]", vocab)
    text_of = {token_id: text for text, token_id in id_of.items() if isinstance(token_id, int)}
    for entry in cast("list[object]", added):
        token_id, content = _mapping(entry).get("id"), _mapping(entry).get("content")
        if not isinstance(token_id, int) or not isinstance(content, str):
            raise TokenizerError(f"{directory}: the added token {entry!r:.80} needs id and content")
        base_id, base_text = id_of.get(content, token_id), text_of.get(token_id, content)
        if base_id != token_id or base_text != content:
            raise TokenizerError(
                f"{directory}: added token {content!r} has id {token_id}, but the vocabulary "
                f"has {base_text!r} there and {content!r} at {base_id}. The files do not belong "
                "together: download all of them again."
            )
