"""dashinfer_lab, measured by its requests' metrics: who watches steps forbids it long calls."""

from __future__ import annotations

import time
from typing import Any

from serving import Decoded, serve

import dashinfer_lab
from dashinfer_lab import LLM, RequestOutput, SamplingParams
from dashinfer_lab.events import RequestMetrics


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
        self._outputs([prompt], 1)
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        outputs = self._outputs(prompts, new_tokens)
        spans = [(it.first_token_seconds, it.last_token_seconds) for it in map(_metrics, outputs)]
        begin, end = max(first for first, _ in spans), max(last for _, last in spans)
        # Who had a first token earlier is counted from the last one's on; beside prompts it was
        # slower than after them, so that its share is no smaller than its time's.
        shares = [(last - begin) / (last - first) for first, last in spans]
        tokens = round(sum(shares) * (new_tokens - 1))
        return Decoded(end - begin, tokens, [list(it.outputs[0].token_ids) for it in outputs])

    def _outputs(self, prompts: list[list[int]], new_tokens: int) -> list[RequestOutput]:
        params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        return self._llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)


def _metrics(output: RequestOutput) -> RequestMetrics:
    assert output.metrics is not None
    return output.metrics


if __name__ == "__main__":
    serve(Ours)
