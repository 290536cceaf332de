"""What a loaded model, its engine and this machine are at now, as rows for the page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from dashinfer_lab.demo.texts import Texts
from dashinfer_lab.free_memory import available_bytes

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["facts", "facts_html", "weights_mb"]


def weights_mb(llm: LLM) -> float:
    """Size of the weights, in 1e6 bytes."""
    return llm.memory().weight_bytes / 1e6


def facts(llm: LLM | None, say: Texts) -> Iterator[tuple[str, str]]:
    """Yield names and values; of a model that is not loaded only what the machine has."""
    if llm is None:
        yield say("panel.engine"), say("panel.not_loaded")
    else:
        yield from _model_facts(llm, say)
    yield say("panel.memory"), _memory(say)


def _model_facts(llm: LLM, say: Texts) -> Iterator[tuple[str, str]]:
    stats, config = llm.engine.stats(), llm.config
    yield (
        say("panel.engine"),
        say("panel.running", running=stats.num_running, queued=stats.num_queued),
    )
    yield (
        say("panel.pages"),
        say(
            "panel.pages_used",
            used=stats.num_pages_used,
            total=stats.num_pages,
        ),
    )
    yield say("model.kv_cache_dtype"), llm.kv_choice.reason(say.language)
    yield (
        say("panel.architecture"),
        say("panel.layers", kind=config.model_type, layers=config.num_layers),
    )
    scheme = llm.artifact.metadata["scheme"]
    yield say("panel.weights"), say("panel.weights_size", scheme=scheme, mb=weights_mb(llm))
    yield say("panel.context"), say("panel.context_tokens", count=config.context_length)
    yield say("panel.isa"), llm.isa
    yield say("panel.threads"), str(llm.threads)


def _memory(say: Texts) -> str:
    import psutil

    used = psutil.Process().memory_info().rss / 1e6
    free = available_bytes() / 1e9
    return say("panel.memory_used", used=used, free=free)


def facts_html(llm: LLM | None, say: Texts) -> str:
    """Return the rows as a titled list of terms, every value escaped; a reason has a line."""
    sentence = say("model.kv_cache_dtype")
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd{' class=why' * (name == sentence)}>{escape(value)}</dd>"
        for name, value in facts(llm, say)
    )
    return f"<h2>{escape(say('panel.title'))}</h2><dl>{rows}</dl>"
