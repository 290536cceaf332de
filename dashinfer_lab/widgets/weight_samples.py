"""Samples of a model's matrices, from its checkpoint or its converted form; quantises nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import ConfigError
from dashinfer_lab.widgets.panel_rows import panel_rows
from jit_kernels.panels import PANEL_WIDTH

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact
    from dashinfer_lab.hub import Checkpoint
    from dashinfer_lab.llm import LLM

__all__ = ["MatrixSample", "sample_matrices"]

_RUNS: Final = 3  # of neighbouring rows, spread over the matrix: a head's rows are alike
_LAYER: Final = re.compile(r"\.(\d+)\.(?:\w+\.)*?(\w+)\.weight$")


@dataclass(frozen=True, slots=True, eq=False)
class MatrixSample:
    """Rows of one matrix of a layer, float32 [rows, K]."""

    name: str
    layer: int
    kind: str
    rows: NDArray[np.float32]


def sample_matrices(model: str | Path | LLM) -> tuple[list[MatrixSample], str]:
    """Sample every matrix of every layer, and say in which formats they are stored.

    An `LLM` gives its converted weights, a name or path the checkpoint's. Raises `ConfigError` for
    what is neither, and the errors of hub, checkpoint and artifact.
    """
    from dashinfer_lab.convert import Artifact, is_artifact
    from dashinfer_lab.hub import open_checkpoint, resolve

    if isinstance(model, str | Path):
        path = resolve(model)
        if not is_artifact(path):
            with closing(open_checkpoint(path)) as checkpoint:
                samples = list(_of_checkpoint(checkpoint))
                return _some(samples, model), ", ".join(checkpoint.stored_bytes())
        artifact = Artifact.open(path)
    else:
        artifact = getattr(model, "artifact", None)
        if artifact is None:
            raise ConfigError(f"{model!r:.80} is no model: give its name, its path or an LLM")
    return _some(list(_of_artifact(artifact)), model), artifact.metadata["scheme"]


def _some(samples: list[MatrixSample], model: object) -> list[MatrixSample]:
    if not samples:
        raise ConfigError(f"{model!r:.80} has no matrix in a layer, so there is nothing to compare")
    return samples


def _of_checkpoint(checkpoint: Checkpoint) -> Iterator[MatrixSample]:
    for name in checkpoint.names():
        found, shape = _LAYER.search(name), checkpoint.info(name).shape
        if found is not None and len(shape) == 2:
            runs = [
                checkpoint.read(name, slice(start, start + PANEL_WIDTH))
                for start in _starts(shape[0], PANEL_WIDTH)
            ]
            rows = np.concatenate([np.asarray(run, np.float32) for run in runs])
            yield MatrixSample(name, int(found[1]), found[2], rows)


def _of_artifact(artifact: Artifact) -> Iterator[MatrixSample]:
    from dashinfer_lab.models import build_graph
    from dashinfer_lab.quantize import Scheme

    for weight in build_graph(artifact.config, Scheme.parse("fp32")).weights:
        found = _LAYER.search(weight.name)
        if found is not None and len(weight.shape) == 2:
            n, k = weight.shape
            panels = _starts(-(-n // PANEL_WIDTH), 1)
            runs = [panel_rows(artifact, weight.name, panel, k) for panel in panels]
            yield MatrixSample(weight.name, int(found[1]), found[2], np.concatenate(runs)[:n])


def _starts(count: int, length: int) -> list[int]:
    return sorted({int(start) for start in np.linspace(0, max(count - length, 0), _RUNS)})
