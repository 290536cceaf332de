"""`dashinfer-lab quickstart`: from nothing to a streamed answer, telling what happens."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from dashinfer_lab.cli.figures import Figures
from dashinfer_lab.cli.messages import language, text
from dashinfer_lab.cli.options import AsJson, Threads, Weights
from dashinfer_lab.cli.output import print_json, remark
from dashinfer_lab.progress import load_bars

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["quickstart"]

_MODEL = "smollm2-135m"
_QUESTION = "What is the capital of France, and what is it known for?"


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
        answer, figures = _ask(llm, question, max_tokens, echo=not as_json)
        weight_mb = llm.memory().weight_bytes / 1e6
        process_mb = psutil.Process().memory_info().rss / 1e6
    if as_json:
        asked = {"model": _MODEL, "question": question, "text": answer, **figures.as_dict()}
        machine = {"isa": llm.isa, "threads": llm.threads}
        memory = {"weight_mb": weight_mb, "process_mb": process_mb}
        print_json({**asked, "load_s": load_seconds, **memory, **machine})
    else:
        memory_line = text("quickstart.memory", process_mb=process_mb, weight_mb=weight_mb)
        print(f"\n\n{figures} · {memory_line}\n\n{text('quickstart.next')}")


def _load(weights: str, threads: int | None) -> LLM:
    from dashinfer_lab import LLM
    from dashinfer_lab.convert import converted
    from dashinfer_lab.hub import resolve

    remark(text("quickstart.fetch"))
    with load_bars(language()) as progress:
        path = resolve(_MODEL, progress.fetch)
    remark(f"      {path}, {path.stat().st_size / 1e6:.0f} MB")
    remark(text("quickstart.convert", weights=weights))
    with load_bars(language()) as progress:
        directory = converted(path, weights, progress.convert)
    remark(f"      {directory}")
    remark(text("quickstart.load"))
    llm = LLM(directory, threads=threads)
    remark(f"      {text('quickstart.machine', isa=llm.isa, threads=llm.threads)}")
    return llm


def _ask(llm: LLM, question: str, max_tokens: int, *, echo: bool) -> tuple[str, Figures]:
    """Answer `question`, writing the text as it comes where `echo`."""
    from dashinfer_lab import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    handle = llm.submit([{"role": "user", "content": question}], params)
    for event in handle:
        if echo:
            print(event.text, end="", flush=True)
    return handle.output.text, Figures.of(handle.metrics)
