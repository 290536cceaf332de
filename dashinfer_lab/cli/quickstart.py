"""`dashinfer-lab quickstart`: from nothing to a streamed answer, telling what happens."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from dashinfer_lab.cli.figures import Figures
from dashinfer_lab.cli.options import AsJson, Threads, Weights
from dashinfer_lab.cli.output import print_json, remark
from dashinfer_lab.cli.progress import conversion_bar, fetch_bar
from dashinfer_lab.errors import TokenizerError

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["quickstart"]

_MODEL = "smollm2-135m"
_QUESTION = "What is the capital of France, and what is it known for?"
_NEXT = """\
Next:
  dashinfer-lab run smollm2-135m "Once upon a time"   continue a text
  dashinfer-lab bench smollm2-135m                    speed against this machine's bandwidth
  dashinfer-lab info                                  this CPU, its threads and why
The embedded model speaks English only (内置模型仅支持英文)."""


def quickstart(
    question: Annotated[str, typer.Argument(metavar="QUESTION")] = _QUESTION,
    max_tokens: Annotated[int, typer.Option(help="Tokens to generate at most.")] = 128,
    weights: Weights = "a16w8",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Fetch and convert the embedded model, ask it QUESTION, stream the answer."""
    import psutil

    begin = perf_counter()
    llm = _load(weights, threads)
    load_seconds = perf_counter() - begin
    with llm:
        remark(f"\n> {question}\n")
        text, figures = _ask(llm, question, max_tokens, echo=not as_json)
        weight_mb = llm.memory().weight_bytes / 1e6
        process_mb = psutil.Process().memory_info().rss / 1e6
    if as_json:
        answer = {"model": _MODEL, "question": question, "text": text, **figures.as_dict()}
        machine = {"isa": llm.isa, "threads": llm.threads}
        memory = {"weight_mb": weight_mb, "process_mb": process_mb}
        print_json({**answer, "load_s": load_seconds, **memory, **machine})
    else:
        memory_line = f"memory {process_mb:.0f} MB, of which weights {weight_mb:.0f} MB"
        print(f"\n\n{figures} · {memory_line}\n\n{_NEXT}")


def _load(weights: str, threads: int | None) -> LLM:
    from dashinfer_lab import LLM
    from dashinfer_lab.convert import converted
    from dashinfer_lab.hub import resolve

    remark("[1/3] Fetching SmolLM2-135M-Instruct (Apache-2.0), once ...")
    with fetch_bar() as progress:
        path = resolve(_MODEL, progress)
    remark(f"      {path}, {path.stat().st_size / 1e6:.0f} MB")
    remark(f"[2/3] Converting to {weights}, once ...")
    with conversion_bar() as progress:
        directory = converted(path, weights, progress)
    remark(f"      {directory}")
    remark("[3/3] Loading; the first time, kernels are compiled for this CPU ...")
    llm = LLM(directory, threads=threads)
    remark(f"      {llm.isa}, {llm.threads} threads")
    return llm


def _ask(llm: LLM, question: str, max_tokens: int, *, echo: bool) -> tuple[str, Figures]:
    """Answer `question`, writing the text as it comes where `echo`."""
    from dashinfer_lab import SamplingParams

    if llm.tokenizer is None:
        raise TokenizerError(f"{llm.artifact.directory} has no tokenizer.json: convert it again")
    ids = llm.tokenizer.encode_chat([{"role": "user", "content": question}])
    handle = llm.engine.submit(ids, SamplingParams(temperature=0, max_tokens=max_tokens))
    for event in handle:
        if echo:
            print(event.text, end="", flush=True)
    return handle.output.text, Figures.of(handle.metrics)
