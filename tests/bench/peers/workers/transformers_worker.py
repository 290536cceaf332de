"""transformers on torch's own kernels, its cache handed on step by step."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from serving import Decoded, serve


class Transformers:
    version = f"{transformers.__version__}, torch {torch.__version__}"

    def __init__(self, request: dict[str, Any]) -> None:
        torch.set_num_threads(request["threads"])
        model = transformers.AutoModelForCausalLM.from_pretrained(request["checkpoint"])
        self._model = model.to({"fp32": torch.float32, "bf16": torch.bfloat16}[request["weights"]])
        self._model.eval()

    def prefill(self, prompt: list[int]) -> float:
        begin = time.perf_counter()
        self._step(torch.tensor([prompt]), None)
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        drawn, cache = self._step(torch.tensor(prompts), None)
        steps = [drawn]
        begin = time.perf_counter()
        for _ in range(new_tokens - 1):
            drawn, cache = self._step(drawn, cache)
            steps.append(drawn)
        seconds = time.perf_counter() - begin
        return Decoded(seconds, (new_tokens - 1) * len(prompts), torch.cat(steps, 1).tolist())

    def _step(self, ids: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        """Return the token after each row of `ids`, [B, 1], and the cache with them."""
        with torch.inference_mode():
            output = self._model(
                input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
        return output.logits[:, -1:].argmax(-1), output.past_key_values


if __name__ == "__main__":
    serve(Transformers)
