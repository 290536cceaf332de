from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from dashinfer_lab.demo.chat import Chat, Settings, View
from dashinfer_lab.demo.context import DemoContext, Sampling
from dashinfer_lab.demo.conversation import Conversation
from dashinfer_lab.demo.shelf import Choice, ModelShelf
from dashinfer_lab.demo.texts import Texts
from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.errors import RequestError
from tests.demo.conftest import CHOICE, eventually
from tests.demo.scripted_model import ScriptedLLM

SETTINGS = Settings(CHOICE, "", Sampling(0, 1, 0, 2000, ""))


async def _all(views: AsyncGenerator[View]) -> list[View]:
    return [view async for view in views]


def _send(context: DemoContext, conversation: Conversation, message: str) -> list[View]:
    return asyncio.run(_all(Chat(context).send("tab", conversation, message, SETTINGS)))


def _num_running(loaded: list[ScriptedLLM]) -> int:
    return loaded[0].engine.stats().num_running


def test_an_answer_comes_with_its_figures(context: DemoContext) -> None:
    conversation = Conversation()
    views = _send(context, conversation, " Hi 你好 ")

    assert [(view.is_busy, view.box) for view in (views[0], views[-1])] == [
        (True, ""),
        (False, None),
    ]
    (turn,) = conversation.turns
    assert (turn.message, turn.answer, turn.failed) == ("Hi 你好", "You said: Hi 你好", False)
    figures = turn.note.split(" · ")
    assert figures[0] == "16 tokens"  # 15 characters and the end
    assert figures[1].endswith(" tokens/s")
    assert figures[2].startswith("first token after ")


def test_nothing_but_blanks_is_no_message(context: DemoContext, loaded: list[ScriptedLLM]) -> None:
    conversation = Conversation()

    assert [list(view.turns) for view in _send(context, conversation, " \n")] == [[]]
    assert loaded == []


def test_the_model_is_asked_with_the_settings(
    context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    settings = Settings(CHOICE, "Be brief.", Sampling(0.5, 0.9, 40, 7, " 42 "))
    views = Chat(context).send("tab", Conversation(), "Hi", settings)
    asyncio.run(_all(views))

    assert loaded[0].prompts == [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    ]
    (params,) = loaded[0].params
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.9, 40)
    assert (params.max_tokens, params.seed) == (7, 42)


def test_what_a_model_states_of_sampling_holds_where_no_control_shows_it(
    context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    context.shelf.fetch(CHOICE)
    loaded[0].sampling_defaults = {"temperature": 0.3, "repetition_penalty": 1.1}
    settings = Settings(CHOICE, "", Sampling(0.5, 0.9, 40, 7, " 42 "))
    asyncio.run(_all(Chat(context).send("tab", Conversation(), "Hi", settings)))

    (params,) = loaded[0].params
    assert (params.temperature, params.repetition_penalty) == (0.5, 1.1)


def test_an_answer_that_was_cut_says_so(context: DemoContext) -> None:
    conversation = Conversation()
    settings = Settings(CHOICE, "", Sampling(0, 1, 0, 16, ""))
    asyncio.run(_all(Chat(context).send("tab", conversation, "count", settings)))

    assert conversation.turns[0].note.startswith("cut at the longest answer allowed · 16 tokens")


def test_a_stop_ends_the_answer_in_the_engine_and_keeps_what_came(
    context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    chat, conversation = Chat(context), Conversation()

    async def stop_at_the_first_words() -> list[View]:
        views = []
        async for view in chat.send("tab", conversation, "count", SETTINGS):
            views.append(view)
            if conversation.turns[0].answer.startswith("1 2"):
                chat.stop("tab")
        return views

    views = asyncio.run(stop_at_the_first_words())

    assert eventually(lambda: _num_running(loaded) == 0)
    assert not views[-1].is_busy
    assert conversation.turns[0].answer.startswith("1 2")
    assert conversation.turns[0].note.startswith("stopped · ")
    assert len(context.running) == 0


@pytest.mark.parametrize("way", ["close", "cancel"])
def test_whatever_ends_the_generator_ends_the_answer_in_the_engine(
    way: str, context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    async def leave() -> None:
        views = Chat(context).send("tab", Conversation(), "count", SETTINGS)
        for _ in range(3):
            await anext(views)
        assert _num_running(loaded) == 1
        if way == "close":
            await views.aclose()
            return
        waiting = asyncio.ensure_future(anext(views))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(leave())

    assert eventually(lambda: _num_running(loaded) == 0)
    assert loaded[0].engine.stats().num_decode_tokens < SETTINGS.sampling.max_tokens
    assert len(context.running) == 0


def test_who_leaves_while_others_are_answered_first_is_answered_no_more() -> None:
    llm = ScriptedLLM(CHOICE, 0.002, EngineOptions(max_running=1))
    shelf = ModelShelf(lambda *_: llm)  # type: ignore[arg-type, return-value]  # the façade's shape
    chat = Chat(DemoContext(shelf, Texts("en"), ("script",), "fp32", any_model=True))

    async def leave() -> None:
        first = chat.send("one", Conversation(), "count", SETTINGS)
        for _ in range(3):
            await anext(first)
        second = chat.send("two", Conversation(), "count", SETTINGS)
        await anext(second)
        waiting = asyncio.ensure_future(anext(second))
        while llm.engine.stats().num_queued == 0:
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while llm.engine.stats().num_queued:
            await asyncio.sleep(0.001)
        assert (await anext(first)).is_busy
        await first.aclose()

    asyncio.run(asyncio.wait_for(leave(), 60))
    shelf.close()

    assert len(llm.prompts) == 2


def test_sessions_are_answered_in_one_batch(
    context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    talks = [Conversation() for _ in range(5)]

    async def all_at_once() -> None:
        chat = Chat(context)
        await asyncio.to_thread(context.shelf.fetch, CHOICE)
        loaded[0].runner.gate.clear()
        answers = asyncio.gather(
            *(
                _all(chat.send(str(i), talk, "say some words", SETTINGS))
                for i, talk in enumerate(talks)
            )
        )
        while len(loaded[0].prompts) < len(talks):
            await asyncio.sleep(0.001)
        loaded[0].runner.gate.set()
        await answers

    asyncio.run(all_at_once())

    assert {talk.turns[0].answer for talk in talks} == {"some words"}
    assert loaded[0].runner.largest_batch == 5


def test_an_answer_is_made_again_from_its_own_message(context: DemoContext) -> None:
    conversation = Conversation()
    for message in ("first", "second"):
        _send(context, conversation, message)
    asyncio.run(_all(Chat(context).rewrite("tab", conversation, 1, None, SETTINGS)))

    assert [turn.answer for turn in conversation.turns] == ["You said: first"]


def test_an_edited_message_is_answered_anew_and_what_came_after_is_gone(
    context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    conversation = Conversation()
    for message in ("first", "second", "third"):
        _send(context, conversation, message)
    asyncio.run(_all(Chat(context).rewrite("tab", conversation, 2, "other", SETTINGS)))

    assert [turn.answer for turn in conversation.turns] == ["You said: first", "You said: other"]
    assert [m["content"] for m in loaded[0].prompts[-1]] == ["first", "You said: first", "other"]


def test_clearing_while_an_answer_comes_ends_it_and_it_does_not_come_back(
    context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    chat, conversation = Chat(context), Conversation()

    async def clear_at_the_first_words() -> View:
        view = None
        async for view in chat.send("tab", conversation, "count", SETTINGS):
            if view.turns and view.turns[0].answer:
                chat.clear("tab", conversation)
        assert view is not None
        return view

    assert list(asyncio.run(clear_at_the_first_words()).turns) == []
    assert eventually(lambda: _num_running(loaded) == 0)


def test_a_refused_request_is_told_under_the_message_and_forgotten_by_the_model(
    context: DemoContext, loaded: list[ScriptedLLM]
) -> None:
    conversation = Conversation()
    _send(context, conversation, "x" * 20_000)

    assert conversation.turns[0].failed
    assert conversation.turns[0].note.startswith("not answered: ")
    assert "16384" in conversation.turns[0].note
    _send(context, conversation, "Hi")
    assert loaded[0].prompts[-1] == [{"role": "user", "content": "Hi"}]


def test_a_model_that_is_not_there_is_told_under_the_message(context: DemoContext) -> None:
    conversation = Conversation()
    settings = Settings(Choice("missing", "fp32"), "", SETTINGS.sampling)
    asyncio.run(_all(Chat(context).send("tab", conversation, "Hi", settings)))

    assert conversation.turns[0].note == "not answered: no model 'missing'"


def test_sampling_controls_are_checked() -> None:
    with pytest.raises(RequestError, match="top_p"):
        Sampling(1, 0, 0, 16, "").params()
    with pytest.raises(RequestError, match="seed='many'.*or nothing"):
        Sampling(1, 1, 0, 16, "many").params()
    assert Sampling(1, 1, 0, 16, "").params().seed is None
