"""The bytes a token stands for, at the start of a text and within it; knows no UTF-8 boundaries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast

from dashinfer_lab.hub.byte_level_bpe import CHARACTER_OF_BYTE

if TYPE_CHECKING:
    import tokenizers

__all__ = ["ByteLevelSpelling", "ContextSpelling", "Spelling", "spelling_of"]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


_BYTE_OF_CHARACTER = {character: byte for byte, character in enumerate(CHARACTER_OF_BYTE)}


class Spelling(Protocol):
    """Token id to bytes; an id beyond the vocabulary is spelled as nothing."""

    def start(self, token_id: int) -> bytes:
        """Return the bytes of a token that begins a text."""
        ...

    def middle(self, token_id: int) -> bytes:
        """Return the bytes of a token that follows another."""
        ...


class ByteLevelSpelling:
    """Byte-level BPE: each character of a token is one byte."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = _added_contents(tokenizer)

    def start(self, token_id: int) -> bytes:
        """Return the token's bytes, the same wherever it stands."""
        return self.middle(token_id)

    def middle(self, token_id: int) -> bytes:
        """Return the token's bytes; an added token is its own text."""
        if token_id in self._added:
            return self._added[token_id]
        token = self._tokenizer.id_to_token(token_id) or ""
        try:
            return bytes([_BYTE_OF_CHARACTER[character] for character in token])
        except KeyError:
            return token.encode("utf-8")


class ContextSpelling:
    """Any other decoder: a token's text is what it adds to a text that already began.

    Byte tokens such as <0xE4> are spelled as their byte.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, *, has_byte_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._has_byte_tokens = has_byte_tokens
        self._added = _added_contents(tokenizer)

    def start(self, token_id: int) -> bytes:
        """Return the bytes of a token that begins a text: without the prefix space."""
        fixed = self._fixed(token_id)
        return self._decode([token_id]) if fixed is None else fixed

    def middle(self, token_id: int) -> bytes:
        """Return the bytes of a token that follows another: what a second copy adds to a first."""
        fixed = self._fixed(token_id)
        if fixed is not None:
            return fixed
        once, twice = self._decode([token_id]), self._decode([token_id, token_id])
        return twice[len(once) :] if twice.startswith(once) else once

    def _fixed(self, token_id: int) -> bytes | None:
        """Return the bytes of a token that no neighbour changes."""
        if token_id in self._added:
            return self._added[token_id]
        if not self._has_byte_tokens:
            return None
        byte = _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token_id) or "")
        return bytes([int(byte[1], 16)]) if byte else None

    def _decode(self, token_ids: list[int]) -> bytes:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False).encode("utf-8")


def spelling_of(
    tokenizer: tokenizers.Tokenizer, decoder: object, *, has_byte_tokens: bool
) -> Spelling:
    """Choose the spelling for a tokenizer whose tokenizer.json describes `decoder`."""
    if "ByteLevel" in _decoder_types(decoder):
        return ByteLevelSpelling(tokenizer)
    return ContextSpelling(tokenizer, has_byte_tokens=has_byte_tokens)


def _decoder_types(decoder: object) -> Iterable[str]:
    """Yield the names of a decoder and of those it is a sequence of."""
    if isinstance(decoder, dict):
        found = cast("dict[str, object]", decoder)
        yield str(found.get("type"))
        for part in cast("list[object]", found.get("decoders") or []):
            yield from _decoder_types(part)


def _added_contents(tokenizer: tokenizers.Tokenizer) -> dict[int, bytes]:
    return {
        token_id: added.content.encode("utf-8")
        for token_id, added in tokenizer.get_added_tokens_decoder().items()
    }
