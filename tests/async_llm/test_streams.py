"""Iteration inside a running event loop and outside, and every way to leave it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import (
    LLM,
    AsyncEngineArgs,
    AsyncLLM,
    AsyncLLMEngine,
    RequestOutput,
    RequestOutputKind,
    SamplingParams,
)
from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.errors import ConfigError, EngineClosedError, RequestError
from tests.held import held

PROMPT = {"prompt_token_ids": [1, 7, 9]}
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=8000, ignore_eos=True)


def expected(engine: AsyncLLM, params: SamplingParams = GREEDY) -> list[int]:
    return engine.llm.generate(PROMPT, params)[0].outputs[0].token_ids


def run(cell: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(cell, 60))


async def settled(engine: AsyncLLM) -> None:
    """Wait until the engine holds nothing; a short request shows that it goes on."""
    async for _ in engine.generate(PROMPT, SamplingParams(temperature=0, max_tokens=1)):
        pass
    while engine.llm.engine.stats().num_running or engine.llm.engine.stats().num_queued:
        await asyncio.sleep(0.001)
    assert engine.llm.engine.stats().num_pages_used == 0


def test_outputs_grow_inside_a_running_loop(engine: AsyncLLM) -> None:
    async def cell() -> list[RequestOutput]:
        return [output async for output in engine.generate(PROMPT, GREEDY, "mine")]

    outputs = run(cell())
    ids = [output.outputs[0].token_ids for output in outputs]

    assert ids[-1] == expected(engine)
    assert all(ids[-1][: len(each)] == each for each in ids)
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert outputs[-1].request_id == "mine"
    assert outputs[-1].metrics is not None


def test_outputs_grow_outside_a_loop(engine: AsyncLLM) -> None:
    outputs = list(engine.generate(PROMPT, GREEDY))

    assert outputs[-1].outputs[0].token_ids == expected(engine)
    assert outputs[-1].finished


def test_a_notebook_cell_may_iterate_without_waiting_for_the_loop(engine: AsyncLLM) -> None:
    async def cell() -> list[int]:
        return list(engine.generate(PROMPT, GREEDY))[-1].outputs[0].token_ids

    assert run(cell()) == expected(engine)


def test_an_answer_is_awaited_whole(engine: AsyncLLM) -> None:
    async def cell() -> tuple[RequestOutput, list[RequestOutput]]:
        return await engine.generate(PROMPT, GREEDY), await asyncio.gather(
            *(engine.generate(PROMPT, GREEDY) for _ in range(3))
        )

    one, several = run(cell())

    assert one.finished
    assert [it.outputs[0].token_ids for it in (one, *several)] == [expected(engine)] * 4


def test_awaiting_a_request_that_is_cancelled_or_aborted_ends(engine: AsyncLLM) -> None:
    async def cell() -> str | None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.generate(PROMPT, LONG), 0.05)
        await settled(engine)
        early = engine.generate(PROMPT, LONG, "early")
        await engine.abort("early")
        with pytest.raises(RequestError, match="early was aborted"):
            await early
        named = asyncio.ensure_future(engine.generate(PROMPT, LONG, "late"))
        while not engine.llm.engine.stats().num_running:
            await asyncio.sleep(0.001)
        await engine.abort("late")
        ended = await named
        await settled(engine)
        return ended.outputs[0].finish_reason

    assert run(cell()) == "cancelled"


def test_a_loaded_model_is_shared(engine: AsyncLLM) -> None:
    async def cell() -> list[int]:
        return (await AsyncLLM(engine.llm).generate(PROMPT, GREEDY)).outputs[0].token_ids

    assert run(cell()) == expected(engine)
    with pytest.raises(ConfigError, match="threads"):
        AsyncLLM(engine.llm, threads=1)


def test_other_tasks_go_on_meanwhile(engine: AsyncLLM) -> None:
    async def answer(first: int) -> list[int]:
        last: list[int] = []
        async for output in engine.generate({"prompt_token_ids": [first, 7]}, GREEDY):
            last = output.outputs[0].token_ids
        return last

    async def cell() -> tuple[list[list[int]], int]:
        ticks = 0

        async def tick(enough: Callable[[], None]) -> None:
            nonlocal ticks
            for _ in range(100):
                ticks += 1
                await asyncio.sleep(0)
            enough()

        with held(engine.llm.engine) as go_on:
            ticking = asyncio.create_task(tick(go_on))
            answers = await asyncio.gather(*(answer(i) for i in range(9)))
            await ticking
        return answers, ticks

    answers, ticks = run(cell())
    alone = engine.llm.generate([{"prompt_token_ids": [i, 7]} for i in range(9)], GREEDY)
    assert answers == [output.outputs[0].token_ids for output in alone]
    assert ticks == 100


def test_several_choices_stream_together(engine: AsyncLLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=9, ignore_eos=True)

    async def cell() -> RequestOutput:
        return [output async for output in engine.generate(PROMPT, params)][-1]

    found = [choice.token_ids for choice in run(cell()).outputs]
    again = engine.llm.generate(PROMPT, params)[0]
    assert found == [choice.token_ids for choice in again.outputs]
    assert [len(ids) for ids in found] == [9, 9, 9]


def test_deltas_joined_are_the_whole(engine: AsyncLLM) -> None:
    whole = SamplingParams(n=2, seed=3, max_tokens=30, logprobs=1, ignore_eos=True)
    pieces = replace(whole, output_kind=RequestOutputKind.DELTA)
    (output,) = engine.llm.generate(PROMPT, whole)
    outputs = list(engine.generate(PROMPT, pieces))

    for choice in output.outputs:
        parts = [part for each in outputs for part in each.outputs if part.index == choice.index]
        assert [i for part in parts for i in part.token_ids] == choice.token_ids
        assert "".join(part.text for part in parts) == choice.text
        assert [entry for part in parts for entry in part.logprobs or ()] == choice.logprobs
        reasons = [part.finish_reason for part in parts]
        assert reasons == [None] * (len(parts) - 1) + ["length"]
    assert [each.finished for each in outputs] == [False] * (len(outputs) - 1) + [True]


def test_final_only_is_one_output(engine: AsyncLLM) -> None:
    params = replace(GREEDY, output_kind=RequestOutputKind.FINAL_ONLY)

    async def cell() -> list[RequestOutput]:
        return [output async for output in engine.generate(PROMPT, params)]

    for outputs in (run(cell()), list(engine.generate(PROMPT, params))):
        assert [output.outputs[0].token_ids for output in outputs] == [expected(engine)]
        assert outputs[0].finished


def test_an_answer_in_deltas_is_awaited_whole(engine: AsyncLLM) -> None:
    params = replace(GREEDY, output_kind=RequestOutputKind.DELTA)

    async def cell() -> RequestOutput:
        return await engine.generate(PROMPT, params)

    assert run(cell()).outputs[0].token_ids == expected(engine)


Leave = Callable[[AsyncLLM, Callable[[], None]], Awaitable[None]]
"""Reads the first output, leaves, and where it reads on lets the held engine go on."""


async def _break(engine: AsyncLLM, _: Callable[[], None]) -> None:
    stream = engine.generate(PROMPT, LONG)
    async for _ in stream:
        break
    assert not stream.ended


async def _cancel_the_task(engine: AsyncLLM, _: Callable[[], None]) -> None:
    seen = asyncio.Event()

    async def answer() -> None:
        async for _ in engine.generate(PROMPT, LONG):
            seen.set()

    task = asyncio.create_task(answer())
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _close(engine: AsyncLLM, _: Callable[[], None]) -> None:
    stream = engine.generate(PROMPT, LONG)
    await anext(aiter(stream))
    await stream.aclose()


async def _raise_in_the_body(engine: AsyncLLM, _: Callable[[], None]) -> None:
    async def answer() -> None:
        async for output in engine.generate(PROMPT, LONG):
            raise ZeroDivisionError(output.request_id)

    with pytest.raises(ZeroDivisionError):
        await answer()


async def _abort(engine: AsyncLLM, go_on: Callable[[], None]) -> None:
    last: RequestOutput | None = None
    async for output in engine.generate(PROMPT, LONG, "named"):
        await engine.abort("named")
        go_on()
        last = output
    assert last is not None
    assert last.finished
    assert last.outputs[0].finish_reason == "cancelled"


async def _break_outside(engine: AsyncLLM, _: Callable[[], None]) -> None:
    for _ in engine.generate(PROMPT, LONG):
        break


@pytest.mark.parametrize(
    "leave", [_break, _cancel_the_task, _close, _raise_in_the_body, _abort, _break_outside]
)
def test_who_leaves_cancels_in_the_engine(engine: AsyncLLM, leave: Leave) -> None:
    async def cell() -> int:
        before = engine.llm.engine.stats().num_decode_tokens
        for _ in range(5):
            with held(engine.llm.engine) as go_on:
                await leave(engine, go_on)
                gc.collect()
            await settled(engine)
        return engine.llm.engine.stats().num_decode_tokens - before

    assert run(cell()) == 0  # tokens after the first


def test_a_stream_that_is_dropped_unread_never_begins(engine: AsyncLLM) -> None:
    before = engine.llm.engine.stats().num_prefill_tokens
    engine.generate(PROMPT, LONG)

    assert engine.llm.engine.stats().num_prefill_tokens == before


def test_an_aborted_stream_that_did_not_begin_is_empty(engine: AsyncLLM) -> None:
    async def cell() -> list[RequestOutput]:
        stream = engine.generate(PROMPT, LONG, "early")
        await engine.abort("early")
        return [output async for output in stream]

    assert run(cell()) == []


def test_who_comes_when_the_queue_is_full_waits_and_others_go_on(tiny: Path) -> None:
    options = EngineOptions(max_running=1, max_queued=1)

    async def answer(engine: AsyncLLM, first: int) -> int:
        async for output in engine.generate({"prompt_token_ids": [first]}, GREEDY):
            if output.finished:
                return len(output.outputs[0].token_ids)
        return 0

    async def cell() -> list[int]:
        async with AsyncLLM(tiny, weights="fp32", threads=1, engine=options) as engine:
            return await asyncio.gather(*(answer(engine, i) for i in range(8)))

    assert run(cell()) == [12] * 8


def test_a_loop_that_ended_harms_no_one(engine: AsyncLLM) -> None:
    kept: list[Any] = []

    async def cell() -> None:
        stream = engine.generate(PROMPT, LONG)
        iteration = aiter(stream)
        kept.append(iteration)
        await anext(iteration)

    run(cell())  # the loop is closed, the request goes on and tells it
    kept.clear()

    assert list(engine.generate(PROMPT, GREEDY))[-1].outputs[0].token_ids == expected(engine)


@pytest.mark.parametrize(
    ("prompt", "params"),
    [
        ({"prompt_token_ids": []}, GREEDY),
        ({"prompt_token_ids": [1] * 9000}, GREEDY),
        ({"prompt": None}, GREEDY),
        ([], GREEDY),
    ],
)
def test_a_prompt_that_cannot_be_served_is_refused_where_it_is_read(
    engine: AsyncLLM, prompt: Any, params: SamplingParams
) -> None:
    async def cell() -> None:
        with pytest.raises(RequestError):
            async for _ in engine.generate(prompt, params):
                pass
        await settled(engine)

    run(cell())


def test_a_stream_is_read_once_and_a_name_taken_once(engine: AsyncLLM) -> None:
    stream = engine.generate(PROMPT, GREEDY, "once")
    with pytest.raises(RequestError, match="once"):
        engine.generate(PROMPT, GREEDY, "once")
    list(stream)
    with pytest.raises(RequestError, match="iterated"):
        list(stream)
    del stream
    list(engine.generate(PROMPT, GREEDY, "once"))


def test_what_are_no_sampling_params_is_refused(engine: AsyncLLM) -> None:
    with pytest.raises(RequestError, match="sampling_params"):
        engine.generate(PROMPT, {"temperature": 0})  # type: ignore[arg-type]


async def shut_down_meanwhile(engine: AsyncLLM) -> None:
    with held(engine.llm.engine):
        async for _ in engine.generate(PROMPT, LONG):
            engine.shutdown()


def test_shutting_down_ends_open_iterations_with_the_reason(tiny: Path) -> None:
    async def cell() -> None:
        args = AsyncEngineArgs(model=tiny, weights="fp32", threads=1, max_model_len=8192)
        engine = AsyncLLMEngine.from_engine_args(args)
        await engine.check_health()
        assert engine.is_running
        assert await engine.get_tokenizer() is engine.llm.tokenizer
        with pytest.raises(EngineClosedError):
            await shut_down_meanwhile(engine)
        assert engine.errored
        with pytest.raises(EngineClosedError):
            await engine.check_health()

    run(cell())


def test_without_parameters_an_answer_may_take_the_rest(engine: AsyncLLM) -> None:
    for output in engine.generate(PROMPT):
        answer = output.outputs[0]
        if len(answer.token_ids) > 16:
            break

    assert len(answer.token_ids) > 16 or answer.finish_reason == "stop"


def test_a_synchronous_engine_is_no_other_model(engine: AsyncLLM) -> None:
    assert isinstance(engine.llm, LLM)
