"""A page's parts without a page: contexts over scripted models that are closed afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from dashinfer_lab.demo.context import DemoContext
from dashinfer_lab.demo.shelf import Choice, ModelShelf
from dashinfer_lab.demo.texts import Texts
from tests.demo.scripted_model import ScriptedLLM

CHOICE = Choice("script", "fp32")


@pytest.fixture
def loaded() -> list[ScriptedLLM]:
    """Every model that was loaded, in order."""
    return []


@pytest.fixture
def shelf(loaded: list[ScriptedLLM]) -> Iterator[ModelShelf]:
    """Lends scripted models."""

    def load(choice: Choice, progress: object) -> ScriptedLLM:
        loaded.append(ScriptedLLM(choice, seconds_per_step=0.002))
        return loaded[-1]

    made = ModelShelf(load)  # type: ignore[arg-type]  # the façade's shape
    yield made
    made.close()


@pytest.fixture
def context(shelf: ModelShelf) -> DemoContext:
    """What a page in English shares."""
    return DemoContext(shelf, Texts("en"), ("script",), "fp32", any_model=True)


def eventually(is_so: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether `is_so` becomes true in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
