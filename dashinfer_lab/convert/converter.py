"""Turns a checkpoint into an artifact: one pass over its weights, whole or not at all.

Knows nothing of file formats of checkpoints, and nothing of how the model will run.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Final

from dashinfer_lab import __version__
from dashinfer_lab.convert.artifact import (
    FORMAT_VERSION,
    GRAPH_FILE,
    WEIGHTS_FILE,
    Artifact,
    config_to_json,
)
from dashinfer_lab.convert.container import ContainerWriter
from dashinfer_lab.convert.matching import match_weights
from dashinfer_lab.convert.publish import published
from dashinfer_lab.convert.staging import require_space
from dashinfer_lab.convert.weight_writer import Progress, WeightWriter
from dashinfer_lab.graph import ModelGraph
from dashinfer_lab.graph.serialize import save_graph
from dashinfer_lab.hub.checkpoint import Checkpoint
from dashinfer_lab.hub.model_config import model_config
from dashinfer_lab.quantize import ELEMENT_BYTES, Scheme

__all__ = ["conversion_identity", "convert"]

_WORKERS: Final = 2
_SPARE_BYTES: Final = 16 << 20  # graph, tokenizer, and room for the file system's own needs


def convert(
    checkpoint: Checkpoint,
    directory: Path,
    scheme: Scheme | str,
    *,
    progress: Progress | None = None,
    overwrite: bool = False,
    clock: Callable[[], float] = perf_counter,
) -> Artifact:
    """Convert `checkpoint` under `scheme` into `directory` and open the result.

    Returns at once where `directory` already holds this very conversion. Raises ConversionError
    where it holds anything else (unless `overwrite` and it is an artifact), for weights that are
    not finite and for lack of disk space; CheckpointError for tensors that do not fit. Whatever
    happens, `directory` is left as it was or complete. `clock` tells seconds, for `progress`.
    """
    from dashinfer_lab.models import build_graph  # what is converted runs without it

    scheme = Scheme.parse(scheme)
    graph = build_graph(model_config(checkpoint.config), scheme)
    metadata = _metadata(checkpoint, graph)

    def write(staging: Path) -> None:
        require_space(staging, _space_needed(graph))
        _write(checkpoint, graph, metadata, staging, progress, clock)

    return published(directory, metadata["identity"], write, overwrite=overwrite)


def conversion_identity(source: str, revision: str, scheme: Scheme) -> str:
    """Name what a conversion depends on: the source, the scheme and the converter."""
    version = ".".join(map(str, FORMAT_VERSION))
    text = "\n".join([source, revision, str(scheme), version, __version__])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _metadata(checkpoint: Checkpoint, graph: ModelGraph) -> dict[str, str]:
    return {
        "format_version": ".".join(map(str, FORMAT_VERSION)),
        "model_type": graph.config.model_type,
        "scheme": str(graph.scheme),
        "group_size": str(graph.scheme.group_size),
        "source": _as_text(checkpoint.source),
        "revision": checkpoint.revision,
        "stored_as": " ".join(checkpoint.stored_bytes()),
        "licence": checkpoint.licence or "",
        "tool_version": __version__,
        "identity": conversion_identity(checkpoint.source, checkpoint.revision, graph.scheme),
        "config": config_to_json(graph.config),
    }


def _as_text(name: str) -> str:
    """Show the bytes of a file's name that are no text as U+FFFD: metadata are text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _space_needed(graph: ModelGraph) -> int:
    """Bound the bytes of the weights file, its spooled scales counted twice."""
    total = _SPARE_BYTES + sum(table.nbytes for table in graph.tables.values())
    for weight in graph.weights:
        panels, *groups = weight.stored_shapes().values()
        total += prod(panels) * ELEMENT_BYTES[weight.format]
        total += sum(2 * 4 * prod(shape) for shape in groups)
    return total


def _write(
    checkpoint: Checkpoint,
    graph: ModelGraph,
    metadata: Mapping[str, str],
    staging: Path,
    progress: Progress | None,
    clock: Callable[[], float],
) -> None:
    checkpoint.write_tokenizer(staging)  # first: what is wrong with it is known at once
    shapes = {name: shape for w in graph.weights for name, shape in w.stored_shapes().items()}
    shapes |= {name: table.shape for name, table in graph.tables.items()}
    complete = {**metadata, "initializers": " ".join(shapes), "graph_sha256": "0" * 64}
    metadata_bytes = len(json.dumps(complete))
    pieces = match_weights(graph, checkpoint)
    with (
        ContainerWriter(staging / WEIGHTS_FILE, shapes, metadata_bytes) as container,
        ThreadPoolExecutor(_WORKERS) as workers,
        tempfile.TemporaryFile(dir=staging) as scales,
        tempfile.TemporaryFile(dir=staging) as minimums,
    ):
        spools = (scales, minimums)
        WeightWriter(checkpoint, pieces, container, spools, workers, progress, clock).write(graph)
        for name, table in graph.tables.items():
            container.append(name, "F32", table.shape, [table])
        path = staging / GRAPH_FILE
        save_graph(graph, path, WEIGHTS_FILE, container.tensors, metadata)
        complete["graph_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        container.finish(complete)
    if checkpoint.licence:
        text = f"{metadata['source']}: licence {checkpoint.licence}, as its files declare.\n"
        (staging / "LICENCE_NOTE.txt").write_text(text, encoding="utf-8")
