"""A tokenizer's files from one directory to another; knows no vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dashinfer_lab.hub.files import (
    confined,
    read_json_object,
    token_ids,
    write_atomically,
    write_json,
)
from dashinfer_lab.hub.made_tokenizer import made_tokenizer

__all__ = ["copy_tokenizer"]


def copy_tokenizer(source: Path, config: Mapping[str, object], directory: Path) -> None:
    """Copy what `source` holds; the chat template and every EOS go into the two configs.

    `config` is the model's. A missing tokenizer.json is made from the files there are
    (`made_tokenizer`); where it cannot be, generation_config.json alone is written.
    """
    generation = _optional(source, "generation_config.json")
    ends = [
        end
        for name, found in (("config", config), ("generation_config", generation))
        for end in token_ids(found.get("eos_token_id"), f"{source / name}.json: eos_token_id")
    ]
    generation["eos_token_id"] = list(dict.fromkeys(ends))
    if "bos_token_id" in config:
        generation.setdefault("bos_token_id", config["bos_token_id"])
    write_json(directory / "generation_config.json", generation)
    path = confined(source, "tokenizer.json")
    settings = _optional(source, "tokenizer_config.json")
    made = None if path.is_file() else made_tokenizer(source, settings, config.get("model_type"))
    if made is None and not path.is_file():
        return
    settings = settings if made is None else dict(made.settings)
    template = confined(source, "chat_template.jinja")
    if template.is_file():
        settings["chat_template"] = template.read_text(encoding="utf-8", errors="replace")
    write_json(directory / "tokenizer_config.json", settings)
    if made is None:
        write_atomically(directory / "tokenizer.json", path.read_bytes())
    else:
        write_json(directory / "tokenizer.json", made.content, indent=None)


def _optional(directory: Path, name: str) -> dict[str, object]:
    path = confined(directory, name)
    return read_json_object(path) if path.is_file() else {}
