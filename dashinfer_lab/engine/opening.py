"""From what a caller names, or holds in memory, to an artifact: fetched, converted once, opened.

Knows neither threads nor requests.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashinfer_lab.errors import ConfigError
from dashinfer_lab.progress import LoadProgress
from dashinfer_lab.quantize import Scheme

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact

__all__ = ["open_model"]


def open_model(
    model: Any, tokenizer: Any, weights: str, threads: int | None, progress: LoadProgress
) -> Artifact:
    """Open `model`, a path, a name or a transformers model, as an artifact with these weights.

    tokenizer: that of a model in memory.  weights: a scheme's spelling or "auto".
    Raises the errors of hub, conversion and artifact; ConfigError for arguments that contradict.
    """
    from dashinfer_lab.hub.transformers_checkpoint import is_transformers_model

    if is_transformers_model(model):
        return _from_memory(model, tokenizer, weights, threads, progress)
    if tokenizer is not None:
        raise ConfigError(
            f"tokenizer={tokenizer!r:.80} belongs to a transformers model in memory; the model "
            f"{model!r:.200} brings its own: leave it away"
        )
    return _from_disk(model, weights, threads, progress)


def _from_memory(
    model: Any, tokenizer: Any, weights: str, threads: int | None, progress: LoadProgress
) -> Artifact:
    from dashinfer_lab.convert import Artifact
    from dashinfer_lab.convert.convert_cache import converted_checkpoint
    from dashinfer_lab.hub import TransformersCheckpoint

    with TransformersCheckpoint(model, tokenizer) as checkpoint:
        if weights == "auto":
            from dashinfer_lab.engine.auto_weights import choice_for

            weights = choice_for(checkpoint, threads).scheme
        return Artifact.open(converted_checkpoint(checkpoint, weights, progress.convert))


def _from_disk(
    model: str | os.PathLike[str], weights: str, threads: int | None, progress: LoadProgress
) -> Artifact:
    from dashinfer_lab.convert import Artifact, is_artifact
    from dashinfer_lab.convert.convert_cache import converted
    from dashinfer_lab.hub import resolve

    path = resolve(Path(model) if isinstance(model, os.PathLike) else model, progress.fetch)
    if is_artifact(path):
        artifact = Artifact.open(path)
        scheme = artifact.metadata.get("scheme", "")
        names = ("auto", scheme, scheme.partition(":")[0])
        if weights not in names and str(Scheme.parse(weights)) != scheme:
            raise ConfigError(
                f"{path} was converted to {scheme}, not {weights}: load its checkpoint with "
                f"weights={weights!r}, or leave weights='auto'"
            )
        return artifact
    if weights == "auto":
        from dashinfer_lab.engine.auto_weights import auto_scheme

        weights = auto_scheme(path, threads)
    return Artifact.open(converted(path, weights, progress.convert))
