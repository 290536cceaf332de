"""tokenizer.json out of a SentencePiece model, where a checkpoint brings only this.

Llama 2's, Mistral's, Baichuan's, InternLM 2's and Gemma's (BPE) and Unigram models differ by what
the model's own settings say; ChatGLM's has tokens beside them, which are named here. No code of the
model is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.piece_vocabulary import Piece, PieceKind, PieceRules, piece_tokenizer
from dashinfer_lab.hub.special_tokens import (
    added_token,
    sequence_template,
    token_content,
    tokens_beside,
)

__all__ = ["CHATGLM_TOKENS", "sentencepiece_tokenizer"]

CHATGLM_TOKENS = (
    "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>",
    "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
)  # fmt: skip
"""ChatGLM 2's and 3's tokens behind the pieces; the former has the first five alone.

Its own files spell the fourth and fifth "sop" and "eop". Here they are spelled as in GLM-4: a text
with the word "sop" in it means the word.
"""
_CHATGLM_PREFIX = ("[gMASK]", "<sop>")
_UNIGRAM, _BPE = 1, 2


def sentencepiece_tokenizer(
    path: Path, source: Path, settings: Mapping[str, object], *, is_chatglm: bool
) -> tuple[dict[str, object], dict[str, object]]:
    """Build tokenizer.json's contents from the model at `path`, and tokenizer_config.json's.

    Raises CheckpointError for a damaged file, UnsupportedModelError for rules not known here.
    """
    model = _parsed(path)
    trainer = model.trainer_spec
    stated = {"bos_token": trainer.bos_piece, "eos_token": trainer.eos_piece}
    settings = {**stated, "unk_token": trainer.unk_piece, **settings}
    pieces = [Piece(it.piece, it.score, it.type) for it in model.pieces]
    if is_chatglm:
        ids = {it: len(pieces) + i for i, it in enumerate(CHATGLM_TOKENS)}
        beside = [added_token(i, it, special=True) for it, i in ids.items()]
        ends = sequence_template([(it, ids[it]) for it in _CHATGLM_PREFIX])
        settings["additional_special_tokens"] = list(CHATGLM_TOKENS)
        settings["bos_token"] = None
    else:
        beside = tokens_beside(source, settings)
        ends = _ends(pieces, beside, settings)
    made = piece_tokenizer(
        pieces, _rules(model, path), added_tokens=beside, post_processor=ends, origin=str(path)
    )
    return made, settings


def _parsed(path: Path) -> Any:
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    model: Any = sentencepiece_model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        model.ParseFromString(path.read_bytes())
    except (DecodeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no SentencePiece model: {error}. Download it again."
        ) from error
    spec = model.trainer_spec
    texts = [*(it.piece for it in model.pieces), spec.bos_piece, spec.eos_piece, spec.unk_piece]
    if not all(isinstance(text, str) for text in texts):  # bytes stand for what is no UTF-8
        raise CheckpointError(f"{path} holds pieces that are no UTF-8 text. Download it again.")
    if not model.pieces:
        raise CheckpointError(f"{path} is a SentencePiece model without pieces. Download it again.")
    return model


def _rules(model: Any, path: Path) -> PieceRules:
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    kinds = (_UNIGRAM, _BPE)
    if trainer.model_type not in kinds or trainer.treat_whitespace_as_suffix:
        raise UnsupportedModelError(
            f"{path} has the SentencePiece type {trainer.model_type}, or spaces at the end of "
            "words; types 1 (Unigram) and 2 (BPE) with spaces before words are supported. Use the "
            "model's tokenizer.json."
        )
    return PieceRules(
        normalizer.add_dummy_prefix,
        normalizer.remove_extra_whitespaces,
        normalizer.escape_whitespaces,
        normalizer.precompiled_charsmap,
        by_sum=trainer.model_type == _UNIGRAM,
    )


def _ends(
    pieces: Sequence[Piece],
    beside: Sequence[Mapping[str, object]],
    settings: Mapping[str, object],
) -> dict[str, object] | None:
    """Return what adds BOS, unless tokenizer_config.json says otherwise, and EOS where it says."""
    ids = {it.text: i for i, it in enumerate(pieces) if it.kind == PieceKind.CONTROL}
    ids |= {str(token["content"]): int(str(token["id"])) for token in beside}
    bos, eos = (token_content(settings.get(role)) or "" for role in ("bos_token", "eos_token"))
    before = [(bos, ids[bos])] if bos in ids and settings.get("add_bos_token") is not False else []
    after = [(eos, ids[eos])] if eos in ids and settings.get("add_eos_token") is True else []
    return sequence_template(before, after)
