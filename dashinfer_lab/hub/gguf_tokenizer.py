"""A tokenizer's files out of GGUF metadata; needs no tokenizer library and reads no file.

Byte-level BPE (GGUF's "gpt2") with the pre-tokenizers of `byte_level_bpe`, and SentencePiece
vocabularies (GGUF's "llama").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.byte_level_bpe import SPLITS, byte_level_bpe, merge_pairs
from dashinfer_lab.hub.files import token_ids
from dashinfer_lab.hub.gguf_config import token_text
from dashinfer_lab.hub.piece_vocabulary import Piece, PieceKind, PieceRules, piece_tokenizer
from dashinfer_lab.hub.special_tokens import added_token, sequence_template

__all__ = ["generation_config", "tokenizer_config", "tokenizer_json"]

_SPECIAL_KINDS = (PieceKind.UNKNOWN, PieceKind.CONTROL, PieceKind.USER_DEFINED)
_OTHER_NAMES = {
    "chatglm-bpe": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "glm4": "llama-bpe",
    "llama-v3": "llama-bpe",
    "llama3": "llama-bpe",
    "mpt": "gpt-2",
    "refact": "smollm",
    "starcoder": "smollm",
}
"""Pre-tokenizers that split as another of `SPLITS` does."""
_WHOLE_WORDS = ("glm4", "llama-bpe", "llama-v3", "llama3")
_BEGINNING = ("llama-bpe", "llama-v3", "llama3")
"""What llama.cpp begins with BOS where a file does not say."""
_GLM_PREFIX = ("[gMASK]", "<sop>")


def tokenizer_json(metadata: Mapping[str, object]) -> dict[str, object]:
    """Build tokenizer.json's contents.

    Raises UnsupportedModelError for a tokenizer of another kind, CheckpointError for a damaged one.
    """
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind == "llama":
        return _pieces(metadata)
    if kind != "gpt2" or not isinstance(pre, str) or _OTHER_NAMES.get(pre, pre) not in SPLITS:
        known = ", ".join(sorted([*SPLITS, *_OTHER_NAMES]))
        raise UnsupportedModelError(
            f"the GGUF tokenizer {kind!r} with pre-tokenizer {pre!r} is not supported; 'llama' "
            f"(SentencePiece) is, and 'gpt2' (byte-level BPE) with {known}. Use the model's "
            "safetensors checkpoint, which brings tokenizer.json."
        )
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        repeated = next(token for i, token in enumerate(tokens) if vocab[token] != i)
        raise CheckpointError(f"the GGUF vocabulary holds {repeated!r} twice")
    lines = _strings(metadata, "tokenizer.ggml.merges")
    return byte_level_bpe(
        vocab,
        list(merge_pairs(lines, vocab, "the GGUF")),
        _added_tokens(metadata, tokens),
        split=_OTHER_NAMES.get(pre, pre),
        add_prefix_space=bool(metadata.get("tokenizer.ggml.add_space_prefix", False)),
        post_processor=_post_processor(metadata, vocab),
        whole_words=pre in _WHOLE_WORDS,
    )


def _pieces(metadata: Mapping[str, object]) -> dict[str, object]:
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise CheckpointError(
            f"the GGUF vocabulary has {len(tokens)} tokens, tokenizer.ggml.scores does not have as "
            "many scores"
        )
    numbers = [score for score in cast("list[object]", scores) if isinstance(score, int | float)]
    if len(numbers) != len(tokens):
        raise CheckpointError("the GGUF vocabulary's tokenizer.ggml.scores are not all numbers")
    pieces = [
        Piece(token, score, kind)
        for token, score, kind in zip(tokens, numbers, _kinds(metadata, tokens), strict=True)
    ]
    return piece_tokenizer(
        pieces,
        PieceRules(add_dummy_prefix=bool(metadata.get("tokenizer.ggml.add_space_prefix", True))),
        added_tokens=_stripping(metadata, pieces),
        post_processor=_post_processor(metadata, {it: i for i, it in enumerate(tokens)}),
        origin="the GGUF vocabulary",
    )


def _stripping(metadata: Mapping[str, object], pieces: list[Piece]) -> list[dict[str, object]]:
    """Return Phi 3's tokens that swallow the spaces behind them; its name alone tells them."""
    name = str(metadata.get("general.name")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return []
    kept = ("<unk>", "<s>", "<|endoftext|>")
    return [
        added_token(i, it.text, special=True) | {"rstrip": True}
        for i, it in enumerate(pieces)
        if it.text not in kept and (it.kind == PieceKind.CONTROL or it.text == "</s>")
    ]


def tokenizer_config(metadata: Mapping[str, object]) -> dict[str, object]:
    """Build tokenizer_config.json's contents: special tokens and the chat template."""
    named = {
        f"{ours}_token": token_text(metadata, theirs)
        for ours, theirs in (
            ("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"),
        )
    }  # fmt: skip
    config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    config["additional_special_tokens"] = [
        entry["content"]
        for entry in _added_tokens(metadata, tokens)
        if entry["special"] and entry["content"] not in named.values()
    ]
    for switch in ("add_bos_token", "add_eos_token"):
        config[switch] = bool(metadata.get(f"tokenizer.ggml.{switch}", False))
    config["clean_up_tokenization_spaces"] = False
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        for_tools = metadata.get("tokenizer.chat_template.tool_use")
        named = [{"name": "default", "template": template}]
        named += [{"name": "tool_use", "template": it} for it in [for_tools] if isinstance(it, str)]
        config["chat_template"] = named if len(named) > 1 else template
    return config


def generation_config(metadata: Mapping[str, object]) -> dict[str, object]:
    """Build generation_config.json's contents: every token at which an answer ends."""
    config: dict[str, object] = {}
    for ours, theirs in (("bos", "bos"), ("pad", "padding")):
        token_id = metadata.get(f"tokenizer.ggml.{theirs}_token_id")
        if token_id is not None:
            config[f"{ours}_token_id"] = token_id
    keys = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
    ends = [end for key in keys for end in token_ids(metadata.get(key), f"the GGUF's {key}")]
    config["eos_token_id"] = list(dict.fromkeys(ends))
    return config


def _kinds(metadata: Mapping[str, object], tokens: list[str]) -> list[int]:
    kinds = metadata.get("tokenizer.ggml.token_type", [PieceKind.NORMAL] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise CheckpointError(
            f"the GGUF vocabulary has {len(tokens)} tokens, tokenizer.ggml.token_type does not "
            "have as many types"
        )
    return cast("list[int]", kinds)  # another value is of no kind


def _added_tokens(metadata: Mapping[str, object], tokens: list[str]) -> list[dict[str, object]]:
    return [
        added_token(token_id, token, special=kind != PieceKind.USER_DEFINED)
        for token_id, (token, kind) in enumerate(zip(tokens, _kinds(metadata, tokens), strict=True))
        if kind in _SPECIAL_KINDS
    ]


def _post_processor(
    metadata: Mapping[str, object], vocab: Mapping[str, int]
) -> dict[str, object] | None:
    """Return the template that adds BOS and EOS where the model asks for them."""
    is_pieces = metadata.get("tokenizer.ggml.model") == "llama"
    begins = is_pieces or metadata.get("tokenizer.ggml.pre") in _BEGINNING
    before, after = (
        [(token, vocab[token])] if token is not None and _adds(metadata, name, default) else []
        for name, default, token in (
            ("bos", begins, token_text(metadata, "bos")),
            ("eos", False, token_text(metadata, "eos")),
        )
    )
    if metadata.get("tokenizer.ggml.pre") in ("chatglm-bpe", "glm4"):
        before = [(token, vocab[token]) for token in _GLM_PREFIX if token in vocab]
    return sequence_template(before, after)


def _adds(metadata: Mapping[str, object], name: str, default: bool) -> bool:
    """Whether every text gets the token: what the file says, else `default`."""
    key = f"tokenizer.ggml.add_{name}_token"
    value = metadata.get(key, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{key} of the GGUF metadata is {value!r:.100}, not true or false")
    return value


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CheckpointError(f"the GGUF metadata has no list of texts under {key!r}")
    return cast("list[str]", value)
