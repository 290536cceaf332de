"""`dashinfer-lab show`: what a model is, before it runs."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.cli.messages import language, spoken, text
from dashinfer_lab.cli.options import AsJson, Model
from dashinfer_lab.cli.output import print_json, print_rows
from dashinfer_lab.progress import load_bars

if TYPE_CHECKING:
    from dashinfer_lab.config import Language, ModelConfig

__all__ = ["show"]


def show(model: Model, as_json: AsJson = False) -> None:
    """Show MODEL's size, scheme, source, licence, context, tokenizer and graph."""
    from dashinfer_lab.convert import is_artifact
    from dashinfer_lab.hub import resolve

    with load_bars(language()) as progress:
        path = resolve(model, progress.fetch)
    is_converted = is_artifact(path)
    describe = _converted if is_converted else _checkpoint
    facts, graph = describe(path, "en" if as_json else language())
    facts = {"model": model, "path": str(path), **facts}
    if as_json:
        print_json({**facts, "graph": graph})
        return
    del facts["config"]  # the graph's summary says it in words
    print_rows((text(f"show.{name}"), _text(name, value)) for name, value in facts.items())
    print("" if is_converted else f"\n{text('show.as_converted')}")
    print(graph)


def _converted(path: Path, spoken_in: Language) -> tuple[dict[str, object], str]:
    from dashinfer_lab.convert import Artifact
    from dashinfer_lab.engine.auto_weights import explain
    from jit_kernels.isa import detect
    from jit_kernels.runtime.topology import thread_plan

    artifact = Artifact.open(path)
    about = artifact.metadata
    facts: dict[str, object] = {
        "kind": "converted",
        "scheme": about["scheme"],
        "weight_bytes": artifact.num_bytes,
        "weights_reason": explain(
            artifact, "auto", detect().name, thread_plan().threads, spoken_in
        ),
        "source": about["source"],
        "revision": about["revision"],
        "licence": about.get("licence") or None,
        **_described(artifact.config, path),
    }
    return facts, _graph(artifact.config, about["scheme"])


def _checkpoint(path: Path, spoken_in: Language) -> tuple[dict[str, object], str]:
    from dashinfer_lab.engine.auto_weights import choice_for
    from dashinfer_lab.hub import model_config, open_checkpoint

    with (
        closing(open_checkpoint(path)) as checkpoint,
        tempfile.TemporaryDirectory() as folder,
    ):
        stored, choice = checkpoint.stored_bytes(), choice_for(checkpoint, language=spoken_in)
        config = model_config(checkpoint.config)
        checkpoint.write_tokenizer(Path(folder))
        facts: dict[str, object] = {
            "kind": "checkpoint",
            "scheme": ", ".join(stored),
            "weight_bytes": sum(stored.values()),
            "weights_reason": choice.reason,
            "source": checkpoint.source,
            "revision": checkpoint.revision,
            "licence": checkpoint.licence,
            **_described(config, Path(folder)),
        }
    return facts, _graph(config, choice.scheme)


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
        return ", ".join(f"{key} {spoken(each)}" for key, each in value.items())
    if name == "kind":
        return text(f"show.kind.{value}")
    return text("show.unknown") if value is None else str(value)
