"""A tokenizer's files from one directory to another; knows no vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from dashinfer_lab.hub.chat_formats import built_in_format, has_own_format, repaired_template
from dashinfer_lab.hub.files import (
    confined,
    read_bounded_text,
    read_json_object,
    token_ids,
    write_atomically,
    write_json,
)
from dashinfer_lab.hub.made_tokenizer import made_tokenizer
from dashinfer_lab.hub.special_tokens import added_token

__all__ = ["copy_tokenizer"]


def copy_tokenizer(source: Path, config: Mapping[str, object], directory: Path) -> None:
    """Copy what `source` holds; the chat template and every EOS go into the two configs.

    `config` is the model's. A missing tokenizer.json is made from the files there are
    (`made_tokenizer`), a missing template is the family's own (`chat_formats`), and
    tokenizer_config.json says so. Without any tokenizer generation_config.json alone is written.
    """
    generation = _optional(source, "generation_config.json")
    ends = [
        end
        for name, found in (("config", config), ("generation_config", generation))
        for end in token_ids(found.get("eos_token_id"), f"{source / name}.json: eos_token_id")
    ]
    if "bos_token_id" in config:
        generation.setdefault("bos_token_id", config["bos_token_id"])
    path = confined(source, "tokenizer.json")
    settings = _optional(source, "tokenizer_config.json")
    made = None if path.is_file() else made_tokenizer(source, settings, config.get("model_type"))
    if made is not None or path.is_file():
        settings = dict(settings if made is None else made.settings)
        template = confined(source, "chat_template.jinja")
        if template.is_file():
            settings["chat_template"] = read_bounded_text(template)
        content = None if made is None else dict(made.content)
        if has_own_format(config):
            content = read_json_object(path) if content is None else content
            ends += _complete(settings, config, generation, content)
        write_json(directory / "tokenizer_config.json", settings)
        if content is None:
            write_atomically(directory / "tokenizer.json", path.read_bytes())
        else:
            write_json(directory / "tokenizer.json", content, indent=None)
    write_json(
        directory / "generation_config.json",
        {**generation, "eos_token_id": list(dict.fromkeys(ends))},
    )


def _complete(
    settings: dict[str, object],
    config: Mapping[str, object],
    generation: Mapping[str, object],
    content: dict[str, object],
) -> list[int]:
    """Put a family's own chat format into `settings` without one; return where answers end.

    Its roles become special tokens of tokenizer.json's `content`.
    """
    ids = _ids_of(content)
    found = built_in_format(config, generation, {i: text for text, i in ids.items()})
    if found is None:
        return []
    added = cast("list[dict[str, object]]", content.get("added_tokens") or [])
    known = {entry.get("content") for entry in added}
    roles = [added_token(ids[it], it, special=True) for it in found.roles if it not in known]
    content["added_tokens"] = [*added, *roles]
    stated = settings.get("chat_template")
    if stated is None:
        settings["chat_template"] = found.template
        settings["chat_template_origin"] = found.name
    elif isinstance(stated, str):
        settings["chat_template"] = repaired_template(stated)
    return [ids[text] for text in found.ends if text in ids]


def _ids_of(content: Mapping[str, object]) -> dict[str, int]:
    """Return the ids of tokenizer.json's tokens by their text."""
    model, added = content.get("model"), content.get("added_tokens")
    vocab = cast("Mapping[str, object]", model).get("vocab") if isinstance(model, Mapping) else None
    pairs = cast("Mapping[str, object]", vocab) if isinstance(vocab, Mapping) else {}
    ids = {text: i for text, i in pairs.items() if isinstance(i, int)}
    for entry in cast("list[object]", added) if isinstance(added, list) else []:
        token = cast("Mapping[str, object]", entry) if isinstance(entry, Mapping) else {}
        text, token_id = token.get("content"), token.get("id")
        if isinstance(text, str) and isinstance(token_id, int):
            ids[text] = token_id
    return ids


def _optional(directory: Path, name: str) -> dict[str, object]:
    path = confined(directory, name)
    return read_json_object(path) if path.is_file() else {}
