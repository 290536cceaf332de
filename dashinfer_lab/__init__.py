"""Run large language models on CPUs, from a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dashinfer_lab.async_llm import AsyncEngineArgs, AsyncLLM, AsyncLLMEngine
    from dashinfer_lab.beam_search import BeamSearchParams
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.outputs import CompletionOutput, RequestOutput
    from dashinfer_lab.sampling import RequestOutputKind, SamplingParams

__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLM",
    "AsyncLLMEngine",
    "BeamSearchParams",
    "CompletionOutput",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "__version__",
]

__version__ = "0.1.0"

# Loaded at first use, so that importing the package costs nothing.
_HOMES = {
    "LLM": "dashinfer_lab.llm",
    "AsyncEngineArgs": "dashinfer_lab.async_llm",
    "AsyncLLM": "dashinfer_lab.async_llm",
    "AsyncLLMEngine": "dashinfer_lab.async_llm",
    "BeamSearchParams": "dashinfer_lab.beam_search",
    "CompletionOutput": "dashinfer_lab.outputs",
    "RequestOutput": "dashinfer_lab.outputs",
    "RequestOutputKind": "dashinfer_lab.sampling",
    "SamplingParams": "dashinfer_lab.sampling",
    # What `%load_ext dashinfer_lab` looks for.
    "load_ipython_extension": "dashinfer_lab.magics",
    "unload_ipython_extension": "dashinfer_lab.magics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
