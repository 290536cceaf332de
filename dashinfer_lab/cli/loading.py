"""A model for a command: bars while it is fetched and converted, and why its weights are so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dashinfer_lab.cli.messages import language, text
from dashinfer_lab.cli.output import remark
from dashinfer_lab.progress import load_bars

if TYPE_CHECKING:
    from pathlib import Path

    from dashinfer_lab.llm import LLM

__all__ = ["load", "weights_facts"]


def load(
    model: str,
    weights: str,
    threads: int | None,
    kv_cache_dtype: str = "auto",
    *,
    chat_template: Path | None = None,
    as_json: bool,
    autotune: bool | Literal["again"] = False,
) -> LLM:
    """Load MODEL; where "auto" chose, say on stderr what and why, unless `as_json` will."""
    from dashinfer_lab import LLM

    with load_bars(language()) as progress:
        llm = LLM(
            model,
            weights=weights,
            threads=threads,
            kv_cache_dtype=kv_cache_dtype,
            progress=progress,
            chat_template=chat_template,
            autotune=autotune,
        )
    if weights == "auto" and not as_json:
        remark(text("load.weights", reason=_reason(llm)))
    if kv_cache_dtype == "auto" and not as_json:
        remark(text("load.kv_cache", reason=llm.kv_choice.reason(language())))
    return llm


def _reason(llm: LLM) -> str:
    """Say in the language of the command why "auto" chose the weights."""
    from dashinfer_lab.engine.auto_weights import explain

    if language() == "en":
        return llm.weights_reason
    return explain(llm.artifact, "auto", llm.isa, llm.threads, language())


def weights_facts(llm: LLM) -> dict[str, object]:
    """What `--json` says of the weights of a loaded model, and of its keys and values."""
    return {
        "weights_reason": llm.weights_reason,
        "kv_cache_dtype": llm.kv_choice.kv_format,
        "kv_cache_reason": llm.kv_choice.reason(),
    }
