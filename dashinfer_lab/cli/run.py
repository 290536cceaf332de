"""`dashinfer-lab run`: complete one prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dashinfer_lab.cli.figures import Figures
from dashinfer_lab.cli.loading import load, weights_facts
from dashinfer_lab.cli.options import AsJson, ContextLength, KvCacheDtype, Model, Threads, Weights
from dashinfer_lab.cli.output import print_json, warnings_after

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.outputs import RequestOutput

__all__ = ["run"]


def run(
    model: Model,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.")],
    max_tokens: Annotated[int, typer.Option(help="Tokens to generate at most.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Mass of the likeliest tokens kept.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Likeliest tokens kept; 0 keeps all.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Makes sampling repeatable.")] = None,
    weights: Weights = "auto",
    kv_cache_dtype: KvCacheDtype = "auto",
    context_length: ContextLength = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Complete PROMPT with MODEL; the text streams to stdout."""
    from dashinfer_lab import SamplingParams

    params = SamplingParams(
        temperature=temperature, top_p=top_p, top_k=top_k, seed=seed, max_tokens=max_tokens
    )
    with load(
        model, weights, threads, kv_cache_dtype, context_length=context_length, as_json=as_json
    ) as llm:
        if as_json:
            (output,) = llm.generate([prompt], params)
            print_json({"model": model, "prompt": prompt, **_described(output, llm)})
        else:
            with warnings_after():
                for delta in llm.stream(prompt, params):
                    print(delta, end="", flush=True)
                print()


def _described(output: RequestOutput, llm: LLM) -> dict[str, object]:
    """What `--json` says of an answer; an answer that failed raises its error."""
    completion = output.outputs[0]
    if completion.error is not None:
        raise completion.error
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "token_ids": completion.token_ids,
        **Figures.of(output.metrics).as_dict(),
        "isa": llm.isa,
        "threads": llm.threads,
        **weights_facts(llm),
    }
