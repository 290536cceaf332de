"""`dashinfer-lab profile`: where the time of an answer goes, operator by operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dashinfer_lab.cli.loading import load, weights_facts
from dashinfer_lab.cli.messages import language, text
from dashinfer_lab.cli.options import AsJson, KvCacheDtype, Model, Threads, Weights
from dashinfer_lab.cli.output import print_json, remark
from dashinfer_lab.errors import ConfigError

if TYPE_CHECKING:
    from dashinfer_lab.profiling import OpProfile

__all__ = ["profile"]

_SUFFIXES = {"--trace": ".json", "--plot": ".png", "--html": ".html"}


def profile(
    model: Model,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="Text to continue; any by default.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate.")] = 32,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace (.json), for ui.perfetto.dev.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture (.png): operators, roofline, memory.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page (.html) with all tables and pictures.")
    ] = None,
    weights: Weights = "auto",
    kv_cache_dtype: KvCacheDtype = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Continue PROMPT with MODEL and show where the time went, prefill and decode apart."""
    from dashinfer_lab import SamplingParams

    files = {"--trace": trace, "--plot": plot, "--html": html}
    wanted = {option: path for option, path in files.items() if path is not None}
    _require_writable(wanted)
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    with load(model, weights, threads, kv_cache_dtype, as_json=as_json) as llm:
        if prompt is None:
            found = llm.profile(sampling_params=params)
        else:
            found = llm.profile(prompt, params)
        facts = weights_facts(llm) if as_json else {}
    _write(found, wanted)
    if as_json:
        names = {option.lstrip("-"): str(path) for option, path in wanted.items()}
        print_json({**found.as_dict(), **facts, "files": names})
        return
    print(found.report(language()))
    for path in wanted.values():
        remark(text("profile.written", path=path))


def _require_writable(wanted: dict[str, Path]) -> None:
    """Refuse before the model is loaded what could not be written after."""
    from dashinfer_lab.profiling import require_savable

    for option, path in wanted.items():
        if path.suffix != _SUFFIXES[option]:
            raise ConfigError(f"{option} {str(path)!r:.200} must end with {_SUFFIXES[option]}")
        require_savable(path)


def _write(found: OpProfile, wanted: dict[str, Path]) -> None:
    from dashinfer_lab.profiling import save_trace

    for option, path in wanted.items():
        if option == "--trace":
            save_trace(found, path)
        else:
            found.save(path, language())
