"""Families out of GGUF files: the logits of the safetensors checkpoint they were made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert import convert
from dashinfer_lab.hub import GgufCheckpoint
from tests.hub.gguf_families import GGUF_CASES, GgufCase, write_family_gguf
from tests.model.family_cases import token_ids
from tests.model.test_families import converted

QUICK = ("qwen2_moe", "gemma3", "chatglm", "internlm2", "mixtral")
each_case = pytest.mark.parametrize(
    "given",
    [
        pytest.param(each, id=str(each), marks=[] if str(each) in QUICK else [pytest.mark.slow])
        for each in GGUF_CASES
    ],
)


@each_case
def test_logits_are_those_of_the_safetensors_checkpoint(tmp_path: Path, given: GgufCase) -> None:
    with GgufCheckpoint(write_family_gguf(given, tmp_path / "tiny.gguf")) as checkpoint:
        artifact = convert(checkpoint, tmp_path / "from_gguf", "fp32")
    with LLM(artifact.directory, threads=2) as llm:
        logits = llm.logits(token_ids())
    with LLM(converted(given.case, tmp_path, "fp32").directory, threads=2) as llm:
        expected = llm.logits(token_ids())

    largest = np.abs(expected).max(axis=1)
    # Gemma's norms were stored with 1 added, in float32: that rounds by 1e-7.
    assert (np.abs(logits - expected).max(axis=1) / largest).max() <= 2e-6
