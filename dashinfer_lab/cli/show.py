"""`dashinfer-lab show`: what a model is, before it runs."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.cli.options import AsJson, Model
from dashinfer_lab.cli.output import print_json, print_rows
from dashinfer_lab.cli.progress import fetch_bar

if TYPE_CHECKING:
    from dashinfer_lab.config import ModelConfig

__all__ = ["show"]

_SCHEME = "a16w8"  # what a checkpoint's graph is shown in, and what `weights="auto"` takes


def show(model: Model, as_json: AsJson = False) -> None:
    """Show MODEL's size, scheme, source, licence, context, tokenizer and graph."""
    from dashinfer_lab.convert import is_artifact
    from dashinfer_lab.hub import resolve

    with fetch_bar() as progress:
        path = resolve(model, progress)
    facts, graph = _converted(path) if is_artifact(path) else _checkpoint(path)
    facts = {"model": model, "path": str(path), **facts}
    if as_json:
        print_json({**facts, "graph": graph})
        return
    del facts["config"]  # the graph's summary says it in words
    print_rows((name, _text(name, value)) for name, value in facts.items())
    print(f"\n{graph}")


def _converted(path: Path) -> tuple[dict[str, object], str]:
    from dashinfer_lab.convert import Artifact

    artifact = Artifact.open(path)
    about = artifact.metadata
    facts: dict[str, object] = {
        "kind": "converted",
        "scheme": about["scheme"],
        "weight_bytes": artifact.num_bytes,
        "source": about["source"],
        "revision": about["revision"],
        "licence": about.get("licence") or None,
        **_described(artifact.config, path),
    }
    return facts, _graph(artifact.config, about["scheme"])


def _checkpoint(path: Path) -> tuple[dict[str, object], str]:
    from dashinfer_lab.hub import model_config, open_checkpoint

    with (
        closing(open_checkpoint(path)) as checkpoint,
        tempfile.TemporaryDirectory() as folder,
    ):
        infos = [checkpoint.info(name) for name in checkpoint.names()]
        config = model_config(checkpoint.config)
        checkpoint.write_tokenizer(Path(folder))
        facts: dict[str, object] = {
            "kind": "checkpoint",
            "scheme": ", ".join(sorted({info.dtype for info in infos})),
            "weight_bytes": sum(info.num_bytes for info in infos),
            "source": checkpoint.source,
            "revision": checkpoint.revision,
            "licence": checkpoint.licence,
            **_described(config, Path(folder)),
        }
    return facts, f"as it would be converted\n{_graph(config, _SCHEME)}"


def _described(config: ModelConfig, directory: Path) -> dict[str, object]:
    """Context, tokenizer and config of the model whose tokenizer lies in `directory`."""
    from dashinfer_lab.tokenizer import Tokenizer

    facts: dict[str, object] = {"context_length": config.context_length, "tokenizer": None}
    if (directory / "tokenizer.json").is_file():
        tokenizer = Tokenizer.load(directory)
        facts["tokenizer"] = {
            "vocab_size": tokenizer.vocab_size,
            "bos_id": tokenizer.bos_id,
            "eos_ids": sorted(tokenizer.eos_ids),
            "chat_template": tokenizer.has_chat_template,
        }
    return {**facts, "config": asdict(config)}


def _graph(config: ModelConfig, scheme: str) -> str:
    from dashinfer_lab.graph.render import summary
    from dashinfer_lab.models import build_graph
    from dashinfer_lab.quantize import Scheme

    return summary(build_graph(config, Scheme.parse(scheme)))


def _text(name: str, value: object) -> str:
    if name == "weight_bytes" and isinstance(value, int):
        return f"{value / 1e6:.1f} MB"
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return "unknown" if value is None else str(value)
