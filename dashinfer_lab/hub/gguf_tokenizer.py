"""A tokenizer's files out of GGUF metadata; needs no tokenizer library and reads no file.

Byte-level BPE (GGUF's "gpt2") with the pre-tokenizers of `byte_level_bpe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.byte_level_bpe import SPLITS, added_token, byte_level_bpe, merge_pairs
from dashinfer_lab.hub.files import token_ids
from dashinfer_lab.hub.gguf_config import token_text

__all__ = ["generation_config", "tokenizer_config", "tokenizer_json"]

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_OTHER_NAMES = {
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
}
"""Pre-tokenizers that split as another of `SPLITS` does."""


def tokenizer_json(metadata: Mapping[str, object]) -> dict[str, object]:
    """Build tokenizer.json's contents.

    Raises UnsupportedModelError for a tokenizer of another kind, CheckpointError for a damaged one.
    """
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or not isinstance(pre, str) or _OTHER_NAMES.get(pre, pre) not in SPLITS:
        raise UnsupportedModelError(
            f"the GGUF tokenizer {kind!r} with pre-tokenizer {pre!r} is not supported; byte-level "
            f"BPE ('gpt2') with {', '.join(sorted(SPLITS))} is. Use the model's "
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
    )


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
        config["chat_template"] = template
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


def _added_tokens(metadata: Mapping[str, object], tokens: list[str]) -> list[dict[str, object]]:
    types = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    if not isinstance(types, list) or len(types) != len(tokens):
        raise CheckpointError(
            f"the GGUF vocabulary has {len(tokens)} tokens, tokenizer.ggml.token_type does not "
            "have as many types"
        )
    return [
        added_token(token_id, token, special=kind != _USER_DEFINED)
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]


def _post_processor(
    metadata: Mapping[str, object], vocab: Mapping[str, int]
) -> dict[str, object] | None:
    """Return the template that adds BOS and EOS where the model asks for them."""
    text: list[dict[str, object]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    special: dict[str, object] = {}
    for name, position in (("bos", 0), ("eos", len(text) + 1)):
        token = token_text(metadata, name)
        if token is None or not metadata.get(f"tokenizer.ggml.add_{name}_token", False):
            continue
        text.insert(position, {"SpecialToken": {"id": token, "type_id": 0}})
        special[token] = {"id": token, "ids": [vocab[token]], "tokens": [token]}
    if not special:
        return None
    pair = [*text, {"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": text,
        "pair": pair,
        "special_tokens": special,
    }


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CheckpointError(f"the GGUF metadata has no list of texts under {key!r}")
    return cast("list[str]", value)
