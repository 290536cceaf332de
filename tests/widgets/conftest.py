"""A tiny model, and the embedded one where a conversation needs a tokenizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.profiling import OpProfile
from jit_kernels.bench import Roof
from tests.model.tiny_artifact import tiny_artifact

pytest.importorskip("ipywidgets")

PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
PROMPT = {"prompt_token_ids": list(range(40))}


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_artifact(tmp_path_factory.mktemp("widgets") / "tiny", "a16w8").directory


@pytest.fixture(scope="session")
def tiny(tiny_directory: Path) -> Iterator[LLM]:
    with LLM(tiny_directory, threads=1) as llm:
        yield llm


@pytest.fixture(scope="session")
def profile(tiny: LLM) -> OpProfile:
    with tiny.profiling() as recorder:
        tiny.generate([{**PROMPT, "cache_salt": "profile"}], PARAMS)
    return OpProfile.of(recorder, Roof(20.0, 18.0, 100.0, 1, "made-up"))


@pytest.fixture(scope="session")
def embedded(embedded_gguf: Path) -> Iterator[LLM]:
    with LLM(embedded_gguf, weights="a16w8", threads=1, progress=False) as llm:
        yield llm


def eventually(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()
