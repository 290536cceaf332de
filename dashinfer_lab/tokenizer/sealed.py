"""Encode a rendered chat so that only the template's special tokens count as special.

A message may spell `<|im_end|>`. Each such spelling is replaced, before rendering, by a mark of
private-use characters that templates trim, test and copy like any word. After rendering, a special
token that stands in the text is the template's own: it gets a private spelling, known only to a
twin of the tokenizer in which the usual spelling means nothing. Then the marks are turned back
into what the message said, and the twin encodes the whole text at once. Ids, normalisation and
splits are those of the tokenizer itself. Knows nothing of templates.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping
from typing import Any, cast

from dashinfer_lab.errors import RequestError, TokenizerError

__all__ = ["SealedEncoder"]

_PRIVATE_USE = 0xF0000
_NUM_PRIVATE_USE = 0xFFFD
_NONCE_CHARACTERS = 8


class SealedEncoder:
    """The twin of one tokenizer; `protected` are the texts that messages may not use."""

    def __init__(self, definition: Mapping[str, object], protected: Collection[str]) -> None:
        from tokenizers import Tokenizer

        self._protected = sorted(protected)
        self._index = {text: index for index, text in enumerate(self._protected)}
        added = cast("list[dict[str, Any]]", definition.get("added_tokens") or [])
        texts = sorted({str(entry["content"]) for entry in added} | set(protected), key=len)
        self._pattern = re.compile("|".join(re.escape(text) for text in reversed(texts)))
        self._mark_nonce, self._seal_nonce = _nonce(), _nonce()
        self._mark_pattern = re.compile(re.escape(self._mark_nonce) + "(.)", re.DOTALL)
        twin = _respelled(definition, {text: self._sealed(text) for text in self._protected})
        try:
            self._twin = Tokenizer.from_str(json.dumps(twin))
        except Exception as error:
            raise TokenizerError(f"special tokens cannot be protected: {error}") from error
        self._twin.no_truncation()
        self._twin.no_padding()
        self._check_ids(added)

    def guard(self, value: object) -> object:
        """Return a copy of a message, or of any part of one, with special spellings marked."""
        if isinstance(value, str):
            return self._replace(value, self._mark_nonce)
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value).items()
            return {self.guard(key): self.guard(item) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.guard(item) for item in cast("list[object]", value)]
        return value

    def encode(self, rendered: str) -> list[int]:
        """Return the ids of a text rendered from guarded messages; adds no BOS.

        Raises RequestError for what is not text.
        """
        sealed = self._replace(rendered, self._seal_nonce)
        text = self._mark_pattern.sub(lambda mark: self._protected[_index_of(mark[1])], sealed)
        try:
            return self._twin.encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise RequestError(f"cannot encode {text!r:.80}: not valid Unicode text") from error

    def _replace(self, text: str, nonce: str) -> str:
        """Replace protected texts; other added tokens win where they are longer, as in encoding."""

        def replacement(match: re.Match[str]) -> str:
            index = self._index.get(match[0])
            return match[0] if index is None else nonce + chr(_PRIVATE_USE + index)

        return self._pattern.sub(replacement, text)

    def _sealed(self, text: str) -> str:
        return self._seal_nonce + chr(_PRIVATE_USE + self._index[text])

    def _check_ids(self, added: list[dict[str, Any]]) -> None:
        for entry in added:
            text = str(entry["content"])
            spelled = self._sealed(text) if text in self._index else text
            if self._twin.token_to_id(spelled) != entry["id"]:
                raise TokenizerError(
                    f"special tokens cannot be protected: {text!r} has id {entry['id']} and "
                    f"would get {self._twin.token_to_id(spelled)}"
                )


def _nonce() -> str:
    """Return private-use characters that nobody can guess: no case, no space, no escapes."""
    return "".join(
        chr(_PRIVATE_USE + secrets.randbelow(_NUM_PRIVATE_USE)) for _ in range(_NONCE_CHARACTERS)
    )


def _index_of(character: str) -> int:
    return ord(character) - _PRIVATE_USE


def _respelled(definition: Mapping[str, object], spelling: Mapping[str, str]) -> dict[str, Any]:
    """Return `definition` with the special tokens spelled by `spelling`, ids unchanged."""
    twin = dict(definition)
    twin["post_processor"] = None
    twin["added_tokens"] = [
        entry | {"content": spelling.get(entry["content"], entry["content"]), "single_word": False}
        for entry in cast("list[dict[str, Any]]", definition.get("added_tokens") or [])
    ]
    model = dict(cast("Mapping[str, Any]", definition["model"]))
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        pairs = cast("dict[str, int]", vocab).items()
        model["vocab"] = {spelling.get(text, text): token_id for text, token_id in pairs}
    elif isinstance(vocab, list):
        scored = cast("list[list[Any]]", vocab)
        model["vocab"] = [[spelling.get(text, text), score] for text, score in scored]
    if model.get("unk_token") in spelling:
        model["unk_token"] = spelling[model["unk_token"]]
    if model.get("merges"):
        model["merges"] = [merge for merge in model["merges"] if not _touches(merge, spelling)]
    twin["model"] = model
    return twin


def _touches(merge: str | list[str], spelling: Mapping[str, str]) -> bool:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left in spelling or right in spelling or left + right in spelling
