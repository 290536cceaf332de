"""Arguments and options shared by commands, so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "ChatTemplate", "ContextLength", "KvCacheDtype", "Model", "Threads", "Weights"]

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Directory (checkpoint or converted), GGUF file, ModelScope id (owner/name), "
        "hf:owner/name, or smollm2-135m.",
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        help="fp32, bf16, a16w8 or a16w4; a16w8:32 … a16w8:512 or a16w8:row set the group size. "
        "a8w8 and a8w4 round activations, too."
    ),
]
KvCacheDtype = Annotated[
    str,
    typer.Option(
        help="Format of cached keys and values: fp32, bf16, int8; auto: by weights and memory."
    ),
]
ContextLength = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens of prompt and answer at most; by default as many as the model knows."
    ),
]
ChatTemplate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Jinja template of a chat, in place of the model's own.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Worker threads; by default as many as this process may use."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
]
