"""`dashinfer-lab convert`: turn a checkpoint into a directory that loads at once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from dashinfer_lab.cli.messages import language, text
from dashinfer_lab.cli.options import AsJson, Model, Weights
from dashinfer_lab.cli.output import print_json, remark
from dashinfer_lab.config import expanded
from dashinfer_lab.errors import ConversionError
from dashinfer_lab.progress import load_bars

__all__ = ["convert"]


def convert(
    model: Model,
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Directory to make.")],
    weights: Weights = "a16w8",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that OUTPUT holds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Convert MODEL into OUTPUT: an ONNX graph, its weights, the tokenizer."""
    from dashinfer_lab.convert import convert as convert_checkpoint
    from dashinfer_lab.convert import is_artifact
    from dashinfer_lab.hub import open_checkpoint, resolve

    begin = perf_counter()
    with load_bars(language()) as progress:
        source = resolve(model, progress.fetch)
    if is_artifact(source):
        raise ConversionError(f"{source} is converted already: give the checkpoint it is made from")
    is_there = not overwrite and is_artifact(expanded(output))  # any other one is refused
    with closing(open_checkpoint(source)) as checkpoint, load_bars(language()) as progress:
        artifact = convert_checkpoint(
            checkpoint, output, weights, progress=progress.convert, overwrite=overwrite
        )
    seconds, scheme = perf_counter() - begin, artifact.metadata["scheme"]
    if as_json:
        print_json(
            {
                "model": model,
                "path": str(artifact.directory),
                "scheme": scheme,
                "source": artifact.metadata["source"],
                "weight_bytes": artifact.num_bytes,
                "convert_s": seconds,
                "was_there": is_there,
            }
        )
    else:
        done = "convert.already" if is_there else "convert.done"
        remark(text(done, scheme=scheme, seconds=seconds))
        print(artifact.directory)
