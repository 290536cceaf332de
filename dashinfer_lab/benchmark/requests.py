"""Requests of a benchmark: random prompts of given lengths, greedy, to their whole length."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dashinfer_lab.engine.loading import MAX_LOGIT_ROWS
from dashinfer_lab.errors import EngineError, RequestError
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.sampling import SamplingParams

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["RandomRequests", "Shape", "first_token_seconds", "require_batch", "require_context"]


class Shape(NamedTuple):
    """Tokens of a request."""

    prompt_tokens: int
    new_tokens: int


class RandomRequests:
    """Serves prompts of random ids, no two alike, the same in every benchmark."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._random = random.Random(0)

    def run(self, shapes: Sequence[Shape]) -> list[RequestMetrics]:
        """Serve a request of each shape, all together; no stop id ends one."""
        vocab_size, draw = self._llm.config.vocab_size, self._random.randrange
        asked = [
            {"prompt_token_ids": [draw(vocab_size) for _ in range(shape.prompt_tokens)]}
            for shape in shapes
        ]
        params = [
            SamplingParams(temperature=0, max_tokens=shape.new_tokens, ignore_eos=True)
            for shape in shapes
        ]
        return [_metrics(output.metrics) for output in self._llm.generate(asked, params)]


def first_token_seconds(run: Sequence[RequestMetrics]) -> float:
    """Seconds until every request of a run had its first token."""
    return max(metrics.ttft_seconds or 0.0 for metrics in run)


def require_batch(batch: int) -> None:
    """Raise RequestError for more requests than are decoded together."""
    if batch > MAX_LOGIT_ROWS:
        raise RequestError(
            f"batch={batch} exceeds the {MAX_LOGIT_ROWS} requests that are decoded together"
        )


def require_context(longest: int, context_length: int, way_out: str) -> None:
    """Raise RequestError at once for what would be refused after minutes of work."""
    if longest > context_length:
        raise RequestError(
            f"the benchmark's longest request has {longest} tokens, the context "
            f"{context_length}: {way_out}"
        )


def _metrics(metrics: RequestMetrics | None) -> RequestMetrics:
    if metrics is None:
        raise EngineError("a request of the benchmark ended without metrics; run it again")
    return metrics
