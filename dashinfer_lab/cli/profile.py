"""`dashinfer-lab profile`: where the time of an answer goes, operator by operator."""

from __future__ import annotations

from typing import Annotated

import typer

from dashinfer_lab.cli.loading import load, weights_facts
from dashinfer_lab.cli.options import AsJson, Model, Threads, Weights
from dashinfer_lab.cli.output import print_json

__all__ = ["profile"]


def profile(
    model: Model,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="Text to continue; any by default.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens to generate.")] = 32,
    weights: Weights = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Continue PROMPT with MODEL and show where the time went, prefill and decode apart."""
    from dashinfer_lab import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    with load(model, weights, threads, as_json=as_json) as llm:
        if prompt is None:
            found = llm.profile(sampling_params=params)
        else:
            found = llm.profile(prompt, params)
        facts = weights_facts(llm) if as_json else {}
    if as_json:
        print_json({**found.as_dict(), **facts})
    else:
        print(found)
