"""Sampling options that a model's own generation_config.json states; knows no request.

As in vLLM, `do_sample` and lengths are not among them: a file cannot know what a caller wants.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from dashinfer_lab.errors import CheckpointError, RequestError
from dashinfer_lab.hub.files import read_json_object
from dashinfer_lab.sampling.params import SamplingParams

__all__ = ["model_defaults"]

_OPTIONS: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def model_defaults(directory: Path) -> dict[str, Any]:
    """Return the options that the model in `directory` states; none where it has no such file.

    Raises CheckpointError for a value that makes no sense.
    """
    path = directory / "generation_config.json"
    if not path.is_file():
        return {}
    stated = read_json_object(path)
    options: dict[str, Any] = {
        name: stated[name] for name in _OPTIONS if stated.get(name) is not None
    }
    try:
        SamplingParams(**options)
    except RequestError as error:
        raise CheckpointError(f"{path}: {error}. Correct the file, or remove the entry.") from error
    return options
