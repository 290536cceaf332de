"""Who awaits an answer reads nothing before its end, and is not woken before."""

from __future__ import annotations

import pytest

from dashinfer_lab import AsyncLLM, RequestOutput, SamplingParams
from dashinfer_lab.async_stream import RequestStream
from tests.async_llm.test_streams import PROMPT, run


def test_an_awaited_answer_is_looked_at_when_each_choice_ends(
    engine: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    news = RequestStream.news

    def noted(stream: RequestStream) -> RequestOutput | None:
        output = news(stream)
        looks.append(output is not None)
        return output

    monkeypatch.setattr(RequestStream, "news", noted)
    params = SamplingParams(n=3, seed=1, max_tokens=40, ignore_eos=True)

    async def cell() -> RequestOutput:
        return await engine.generate(PROMPT, params)

    output = run(cell())

    assert [len(choice.token_ids) for choice in output.outputs] == [40] * 3
    assert looks.count(True) == 1
    assert len(looks) <= 1 + 3  # before the first end, and at each
