"""An answer while it comes: what it says so far, and in the end its figures; knows no page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashinfer_lab.demo.running import Stop
from dashinfer_lab.demo.texts import Texts

if TYPE_CHECKING:
    from dashinfer_lab.engine import RequestOptions
    from dashinfer_lab.events import RequestMetrics
    from dashinfer_lab.llm import LLM, Message, Prompt
    from dashinfer_lab.outputs import CompletionOutput
    from dashinfer_lab.sampling import SamplingParams

__all__ = ["Answer", "answering"]

# Twenty updates a second look continuous; waking for every token would take a processor from the
# engine's workers just when the next step begins.
_SECONDS_BETWEEN_UPDATES: Final = 0.05


@dataclass(frozen=True, slots=True)
class Answer:
    """Text and tokens so far. `metrics` comes with the end, `error` where it ended with one."""

    text: str
    token_ids: list[int]
    finish_reason: str | None = None
    error: BaseException | None = None
    metrics: RequestMetrics | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Speed after the first token; None before the end, or with fewer than two."""
        between = self.metrics.seconds_per_token if self.metrics else None
        return 1 / between if between else None

    def note(self, say: Texts) -> str:
        """Why it ended where that is worth a word, its length, speed and time to first token."""
        if self.error is not None:
            return say("answer.error", message=say.error(self.error))
        parts = []
        if self.finish_reason in ("cancelled", "length"):
            key = {"cancelled": "answer.stopped", "length": "answer.length"}[self.finish_reason]
            parts.append(say(key))
        parts.append(say("answer.tokens", count=len(self.token_ids)))
        if self.tokens_per_second is not None:
            parts.append(say("answer.speed", rate=self.tokens_per_second))
        if self.metrics is not None and self.metrics.ttft_seconds is not None:
            parts.append(say("answer.ttft", seconds=self.metrics.ttft_seconds))
        return " · ".join(parts)


async def answering(
    llm: LLM,
    prompt: Prompt | Sequence[Message],
    params: SamplingParams,
    stop: Stop,
    options: RequestOptions | None = None,
) -> AsyncGenerator[Answer]:
    """Yield the answer as it grows, the last time with its end.

    `stop` ends it in the engine, and so does whatever closes this generator. Raises
    `RequestError`.
    """
    handle = await asyncio.to_thread(llm.submit, prompt, params, options=options)
    try:
        stop.ends(handle.cancel)
        shown = 0
        while not handle.finished:
            await asyncio.sleep(_SECONDS_BETWEEN_UPDATES)
            output = handle.output
            if handle.finished or len(output.token_ids) > shown:
                shown = len(output.token_ids)
                yield _answer(output, handle.metrics)
    finally:
        handle.cancel()


def _answer(output: CompletionOutput, metrics: RequestMetrics | None) -> Answer:
    return Answer(output.text, output.token_ids, output.finish_reason, output.error, metrics)
