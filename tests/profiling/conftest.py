"""A tiny model and profiles of it; no roof is measured but a made one is given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.profiling import OpProfile
from jit_kernels.bench import Roof
from tests.model.tiny_artifact import tiny_artifact

ROOF = Roof(20.0, 18.0, 100.0, 1, "made-up")
PROMPTS = [{"prompt_token_ids": list(range(first, first + 40))} for first in (0, 50, 100)]
PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="session")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    artifact = tiny_artifact(tmp_path_factory.mktemp("profile") / "tiny", "a16w8")
    options = EngineOptions(enable_prefix_caching=False)  # the same prompts come again and again
    with LLM(artifact.directory, threads=1, engine=options) as llm:
        yield llm


@pytest.fixture(scope="session")
def batch(llm: LLM) -> OpProfile:
    """Three requests at once."""
    with llm.profiling() as recorder:
        llm.generate(PROMPTS, PARAMS)
    return OpProfile.of(recorder, ROOF)
