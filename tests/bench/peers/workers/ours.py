"""dashinfer_lab, measured by its own step events."""

from __future__ import annotations

import time
from typing import Any

from serving import Decoded, serve

import dashinfer_lab
from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.events import StepEvent


class Ours:
    version = dashinfer_lab.__version__

    def __init__(self, request: dict[str, Any]) -> None:
        weights, _, kv = request["weights"].partition("/")
        self._llm = LLM(
            request["source"], weights=weights, kv_cache_dtype=kv or "auto",
            threads=request["threads"], progress=False,
        )  # fmt: skip

    def prefill(self, prompt: list[int]) -> float:
        begin = time.perf_counter()
        self._generate([prompt], 1)
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        steps: list[StepEvent] = []
        end = self._llm.engine.subscribe(steps.append)
        try:
            ids = self._generate(prompts, new_tokens)
        finally:
            end()
        last_prefill = max(index for index, step in enumerate(steps) if step.num_prefill_tokens)
        decoding = steps[last_prefill + 1 :]
        ended = decoding[-1].begin_seconds + decoding[-1].total_seconds
        tokens = sum(step.num_decode_tokens for step in decoding)
        return Decoded(ended - decoding[0].begin_seconds, tokens, ids)

    def _generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self._llm.generate(asked, params)
        return [list(output.outputs[0].token_ids) for output in outputs]


if __name__ == "__main__":
    serve(Ours)
