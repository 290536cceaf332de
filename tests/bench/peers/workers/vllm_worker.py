"""vLLM's CPU build; decoding is what a long answer takes beyond one token."""

from __future__ import annotations

import os
import time
from typing import Any

from serving import Decoded, serve


class Vllm:
    def __init__(self, request: dict[str, Any]) -> None:
        threads = request["threads"]
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
        import vllm

        self.version = vllm.__version__
        self._params = vllm.SamplingParams
        self._llm = vllm.LLM(
            request["checkpoint"], dtype="bfloat16", max_model_len=request["max_length"],
            max_num_seqs=request["max_batch"], enable_prefix_caching=False,
        )  # fmt: skip

    def prefill(self, prompt: list[int]) -> float:
        begin = time.perf_counter()
        self._generate([prompt], 1)
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        begin = time.perf_counter()
        self._generate(prompts, 1)
        first = time.perf_counter()
        ids = self._generate(prompts, new_tokens)
        seconds = (time.perf_counter() - first) - (first - begin)
        return Decoded(seconds, (new_tokens - 1) * len(prompts), ids)

    def _generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        params = self._params(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self._llm.generate(asked, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


if __name__ == "__main__":
    serve(Vllm)
