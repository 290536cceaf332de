"""tokenizer.json of a SentencePiece vocabulary; reads no file.

Every text between special tokens is encoded as `SentencePieceProcessor.encode` does: the
normaliser's steps in its order, pieces that a user defined taken whole; then BPE merges the best
score first, and Unigram takes the pieces with the best sum of scores, which it adds in 64 bits
where SentencePiece does in 32: of several such sums another may be taken.
Source: sentencepiece's normalizer.cc, bpe_model.cc and unigram_model.cc.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.special_tokens import added_token

__all__ = ["Piece", "PieceKind", "PieceRules", "piece_tokenizer"]

_SPACE = "▁"


class PieceKind(IntEnum):
    """What a piece is for, by the numbers of SentencePiece and of GGUF."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its place is its id."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True, slots=True)
class PieceRules:
    """How a text becomes pieces."""

    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = False
    escape_whitespaces: bool = True
    charsmap: bytes = b""
    """SentencePiece's compiled table of characters to replace; empty for none."""
    by_sum: bool = False
    """Whether the best sum of scores decides (Unigram), not the best merge (BPE)."""


def piece_tokenizer(
    pieces: Sequence[Piece],
    rules: PieceRules,
    *,
    added_tokens: Sequence[Mapping[str, object]] = (),
    post_processor: Mapping[str, object] | None = None,
    origin: str,
) -> dict[str, object]:
    """Build tokenizer.json's contents; an added token with a piece's id takes its place.

    Raises CheckpointError, naming `origin`, for a damaged vocabulary.
    """
    renamed = {int(str(token["id"])): str(token["content"]) for token in added_tokens}
    pieces = [
        Piece(renamed[i], it.score, PieceKind.CONTROL) if i in renamed else it
        for i, it in enumerate(pieces)
    ]
    _check(pieces, origin)
    own_symbols = [it.text for it in pieces if it.kind == PieceKind.USER_DEFINED]
    if rules.by_sum:
        own_symbols = []  # their score of 0 wins where SentencePiece lets them
    bare = not rules.add_dummy_prefix and not rules.charsmap
    outside = [it for it in own_symbols if bare and _SPACE not in it]
    inside = [it for it in own_symbols if it not in set(outside)]
    ids = {it.text: i for i, it in enumerate(pieces)}
    tokens = [
        added_token(i, it.text, special=True)
        for i, it in enumerate(pieces)
        if it.kind in (PieceKind.UNKNOWN, PieceKind.CONTROL) and i not in renamed
    ]
    tokens += [added_token(ids[text], text, special=False) for text in outside]
    tokens += [dict(token) for token in added_tokens]
    model = _unigram(pieces, origin) if rules.by_sum else _bpe(pieces, bool(inside), origin)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(tokens, key=lambda token: int(str(token["id"]))),
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(rules)},
        "pre_tokenizer": _apart(pieces) if rules.by_sum else _isolated(inside),
        "post_processor": post_processor,
        "decoder": {"type": "Sequence", "decoders": _decoders(rules)},
        "model": model,
    }


def _check(pieces: Sequence[Piece], origin: str) -> None:
    if not any(it.kind == PieceKind.UNKNOWN for it in pieces):
        raise CheckpointError(f"{origin} names no piece for what is unknown")
    seen: set[str] = set()
    for piece in pieces:
        if not isfinite(piece.score):
            raise CheckpointError(f"{origin}: {piece.text!r:.80} has the score {piece.score}")
        if piece.text in seen or not piece.text:
            raise CheckpointError(f"{origin} holds the piece {piece.text!r} twice, or an empty one")
        seen.add(piece.text)


def _normalizers(rules: PieceRules) -> list[dict[str, object]]:
    steps: list[dict[str, object]] = []
    if rules.charsmap:
        charsmap = base64.b64encode(rules.charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if rules.remove_extra_whitespaces:  # spaces alone count, newlines stay
        steps.append(_replace({"Regex": r"\A +"}, ""))
        steps.append(_replace({"Regex": " {2,}"}, " "))
    if rules.escape_whitespaces:
        steps.append(_replace({"String": " "}, _SPACE))
    if rules.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": _SPACE if rules.escape_whitespaces else " "})
    if rules.remove_extra_whitespaces:
        steps.append(_replace({"Regex": f"[ {_SPACE}]+\\z"}, ""))
    return steps


def _replace(pattern: Mapping[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": dict(pattern), "content": content}


def _isolated(symbols: Sequence[str]) -> dict[str, object] | None:
    """Isolate a user's pieces, and take apart a word that is spelled like a byte's piece."""
    if not symbols:
        return None
    longest_first = sorted(symbols, key=len, reverse=True)
    isolated = _split("|".join(map(re.escape, longest_first)))
    apart = _split(r"\A<(?=0x[0-9A-F]{2}>\z)")  # each would be taken whole
    return {"type": "Sequence", "pretokenizers": [isolated, apart]}


def _apart(pieces: Sequence[Piece]) -> dict[str, object] | None:
    """Cut what is spelled like a byte's piece: Unigram would find that piece within words."""
    pattern = r"<(?=0x[0-9A-F]{2}>)"
    return _split(pattern, behavior="MergedWithPrevious") if _has_bytes(pieces) else None


def _split(pattern: str, behavior: str = "Isolated") -> dict[str, object]:
    regex = {"Regex": pattern}
    return {"type": "Split", "pattern": regex, "behavior": behavior, "invert": False}


def _decoders(rules: PieceRules) -> list[dict[str, object]]:
    steps: list[dict[str, object]] = [_replace({"String": _SPACE}, " "), {"type": "ByteFallback"}]
    steps.append({"type": "Fuse"})
    if rules.add_dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return steps


def _unknown(pieces: Sequence[Piece]) -> int:
    return next(i for i, it in enumerate(pieces) if it.kind == PieceKind.UNKNOWN)


def _has_bytes(pieces: Sequence[Piece]) -> bool:
    return sum(it.kind == PieceKind.BYTE for it in pieces) == 256


def _unigram(pieces: Sequence[Piece], origin: str) -> dict[str, object]:
    unused = next((it.text for it in pieces if it.kind == PieceKind.UNUSED), None)
    if unused is not None:
        raise UnsupportedModelError(
            f"{origin} holds {unused!r}, a piece that it never gives out, which is not supported "
            "for Unigram. Use the model's tokenizer.json."
        )
    return {
        "type": "Unigram",
        "unk_id": _unknown(pieces),
        "byte_fallback": _has_bytes(pieces),
        "vocab": [[it.text, it.score if it.kind == PieceKind.NORMAL else 0.0] for it in pieces],
    }


def _bpe(pieces: Sequence[Piece], whole_words: bool, origin: str) -> dict[str, object]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": pieces[_unknown(pieces)].text,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": _has_bytes(pieces),
        "ignore_merges": whole_words,
        "vocab": {it.text: i for i, it in enumerate(pieces)},
        "merges": _merges(pieces, origin),
    }


def _merges(pieces: Sequence[Piece], origin: str) -> list[list[str]]:
    """Return every way to make a piece of two others, the best score first."""
    rank = {it.text: (-it.score, i) for i, it in enumerate(pieces) if it.kind == PieceKind.NORMAL}
    for piece in pieces:
        if piece.kind == PieceKind.UNUSED and _halves(piece.text, rank):
            raise UnsupportedModelError(
                f"{origin} merges {piece.text!r} on the way and never gives it out, which is not "
                "supported. Use the model's tokenizer.json."
            )
    ranked = [(*rank[text], *halves) for text in rank for halves in _halves(text, rank)]
    return [[left, right] for _, _, left, right in sorted(ranked)]


def _halves(text: str, rank: Mapping[str, object]) -> list[tuple[str, str]]:
    cuts = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
    return [(left, right) for left, right in cuts if left in rank and right in rank]
