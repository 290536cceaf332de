"""A model for a command: bars while it is fetched and converted, and what "auto" chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dashinfer_lab.cli.messages import language, text
from dashinfer_lab.cli.output import remark
from dashinfer_lab.progress import load_bars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dashinfer_lab.llm import LLM

__all__ = ["load", "weights_facts"]


def load(
    model: str,
    weights: str,
    threads: int | None,
    kv_cache_dtype: str = "auto",
    *,
    context_length: int | None = None,
    chat_template: Path | None = None,
    as_json: bool,
    autotune: bool | Literal["again"] = False,
) -> LLM:
    """Load MODEL; where "auto" chose, say on stderr what in one line, unless `as_json` will."""
    from dashinfer_lab import LLM

    with load_bars(language()) as progress:
        llm = LLM(
            model,
            weights=weights,
            threads=threads,
            kv_cache_dtype=kv_cache_dtype,
            context_length=context_length,
            progress=progress,
            chat_template=chat_template,
            autotune=autotune,
        )
    if not as_json:
        chosen = list(_chosen(llm, weights, kv_cache_dtype))
        if chosen:
            remark(text("load.chosen", chosen=text("load.and").join(chosen), model=model))
    return llm


def _chosen(llm: LLM, weights: str, kv_cache_dtype: str) -> Iterator[str]:
    """Yield what "auto" chose of the two, and why, each in a clause."""
    from dashinfer_lab.engine.auto_weights import explain_briefly

    if weights == "auto":
        reason = explain_briefly(llm.artifact, llm.isa, llm.threads, language())
        yield text("load.weights", reason=reason)
    if kv_cache_dtype == "auto":
        yield text("load.kv_cache", reason=llm.kv_choice.brief(language()))


def weights_facts(llm: LLM) -> dict[str, object]:
    """What `--json` says of the weights of a loaded model, and of its keys and values."""
    return {
        "weights_reason": llm.weights_reason,
        "kv_cache_dtype": llm.kv_choice.kv_format,
        "kv_cache_reason": llm.kv_choice.reason(),
    }
