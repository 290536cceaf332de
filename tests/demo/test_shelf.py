from __future__ import annotations

import asyncio
import threading

import pytest

from dashinfer_lab.demo.shelf import Choice, ModelShelf
from dashinfer_lab.errors import HubError
from tests.demo.conftest import CHOICE, eventually
from tests.demo.scripted_model import ScriptedLLM


def _choice(number: int) -> Choice:
    return Choice(f"model{number}", "fp32")


def test_a_model_is_loaded_once(shelf: ModelShelf, loaded: list[ScriptedLLM]) -> None:
    shelf.fetch(CHOICE)
    shelf.fetch(CHOICE)

    assert len(loaded) == 1
    assert shelf.peek(CHOICE) is loaded[0]
    assert shelf.peek(_choice(1)) is None


def test_two_choices_of_one_artifact_share_it(shelf: ModelShelf, loaded: list[ScriptedLLM]) -> None:
    shelf.fetch(CHOICE)
    loaded[0].artifact.directory = shelf_directory = loaded[0].artifact.directory
    other = Choice(CHOICE.model, "auto")
    original = ScriptedLLM.__init__

    def same_place(self: ScriptedLLM, choice: Choice, **options: float) -> None:
        original(self, choice, **options)
        self.artifact.directory = shelf_directory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedLLM, "__init__", same_place)
        shelf.fetch(other)

    assert shelf.peek(other) is loaded[0]
    assert not loaded[1].engine.alive


def test_other_formats_of_keys_and_values_are_models_of_their_own(
    shelf: ModelShelf, loaded: list[ScriptedLLM]
) -> None:
    shelf.fetch(CHOICE)
    other = CHOICE._replace(kv_cache_dtype="int8")
    shelf.fetch(other)

    assert [shelf.peek(CHOICE), shelf.peek(other)] == loaded


def test_of_idle_models_the_last_used_two_stay(
    shelf: ModelShelf, loaded: list[ScriptedLLM]
) -> None:
    for number in (1, 2, 1, 3):
        shelf.fetch(_choice(number))

    assert [llm.choice.model for llm in loaded if llm.engine.alive] == ["model1", "model3"]


def test_a_model_in_use_is_not_closed(shelf: ModelShelf, loaded: list[ScriptedLLM]) -> None:
    async def use() -> None:
        async with shelf.lent(_choice(0)) as llm:
            for number in (1, 2, 3):
                await asyncio.to_thread(shelf.fetch, _choice(number))
            assert llm.engine.alive

    asyncio.run(use())

    assert [llm.choice.model for llm in loaded if llm.engine.alive] == ["model0", "model3"]


def test_who_leaves_while_a_model_loads_holds_nothing(loaded: list[ScriptedLLM]) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def load(choice: Choice, progress: object) -> ScriptedLLM:
        begun.set()
        assert go_on.wait(10)
        loaded.append(ScriptedLLM(choice))
        return loaded[-1]

    shelf = ModelShelf(load, keep=0)  # type: ignore[arg-type]  # the façade's shape

    async def borrow() -> None:
        async with shelf.lent(CHOICE):
            pass

    async def leave() -> None:
        borrowing = asyncio.ensure_future(borrow())
        await asyncio.to_thread(begun.wait, 10)
        borrowing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await borrowing
        go_on.set()

    asyncio.run(leave())

    assert eventually(lambda: bool(loaded) and not loaded[0].engine.alive)
    assert [llm.engine.alive for llm in loaded] == [False]


def test_a_model_that_cannot_be_loaded_is_tried_anew(shelf: ModelShelf) -> None:
    for _ in range(2):
        with pytest.raises(HubError, match="no model 'missing'"):
            shelf.fetch(Choice("missing", "fp32"))


def test_closing_closes_all(shelf: ModelShelf, loaded: list[ScriptedLLM]) -> None:
    shelf.fetch(_choice(1))
    shelf.fetch(_choice(2))
    shelf.close()

    assert [llm.engine.alive for llm in loaded] == [False, False]
