"""Prompts of different lengths in one call answer as each does alone: nothing is padded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dashinfer_lab import LLM, SamplingParams
from tests.model.tiny_artifact import tiny_artifact

LENGTHS = (1, 37, 129, 160)
TOKENS = np.random.default_rng(11).integers(0, 331, max(LENGTHS)).tolist()
PARAMS = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, logprobs=2)


def test_prompts_of_many_lengths_answer_together_as_alone(tmp_path: Path) -> None:
    prompts = [{"prompt_token_ids": TOKENS[-length:]} for length in LENGTHS]
    with LLM(tiny_artifact(tmp_path, "fp32").directory, threads=2) as llm:
        together = llm.generate(prompts, PARAMS)
        alone = [llm.generate([prompt], PARAMS)[0] for prompt in prompts]

    for ours, theirs in zip(together, alone, strict=True):
        assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids
        assert ours.outputs[0].logprobs == theirs.outputs[0].logprobs
    assert len({tuple(each.outputs[0].token_ids) for each in together}) == len(LENGTHS)
