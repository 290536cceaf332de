"""Loaded models, shared by everyone who asks for the same one; knows no page.

A model that someone uses is never closed; of the idle ones the last used stay.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.progress import LoadProgress

__all__ = ["Choice", "Load", "ModelShelf"]


class Choice(NamedTuple):
    """What a person picked: a MODEL, a scheme, a format of keys and values, as `LLM` takes them."""

    model: str
    weights: str
    kv_cache_dtype: str = "auto"


Load = Callable[[Choice, "LoadProgress | None"], "LLM"]


@dataclass(eq=False)
class _Loaded:
    """A model, who uses it, and under which choices it is known."""

    llm: LLM
    known_as: set[Choice] = field(default_factory=set[Choice])
    num_users: int = 0


class ModelShelf:
    """Lends models; `keep` is how many stay loaded once nobody uses them.

    Loads one at a time: two at once would compete for memory that the first was to report.
    """

    def __init__(self, load: Load, *, keep: int = 2) -> None:
        self._load: Final = load
        self._keep: Final = keep
        self._loader: Final = ThreadPoolExecutor(1, "dashinfer-lab-load")
        self._lock: Final = threading.Lock()
        self._loaded: list[_Loaded] = []  # the last used one comes last

    def peek(self, choice: Choice) -> LLM | None:
        """Return the model where it is loaded; it may be closed at any time."""
        with self._lock:
            found = self._find(choice)
            return found.llm if found else None

    def fetch(self, choice: Choice, progress: LoadProgress | None = None) -> None:
        """Load the model where it is not loaded; raises what `LLM` raises."""
        loaded = self._use(choice) or self._loader.submit(self._take, choice, progress).result()
        self._give_back(loaded)

    @asynccontextmanager
    async def lent(self, choice: Choice) -> AsyncGenerator[LLM]:
        """Lend the model for the length of the block, loading it first where necessary."""
        loaded = self._use(choice)
        if loaded is None:
            taking = self._loader.submit(self._take, choice, None)
            try:
                loaded = await asyncio.wrap_future(taking)
            except asyncio.CancelledError:
                taking.add_done_callback(self._return_unused)
                raise
        try:
            yield loaded.llm
        finally:
            self._give_back(loaded)

    def close(self) -> None:
        """Close every model, used or not; what is being loaded is waited for."""
        self._loader.shutdown(cancel_futures=True)
        with self._lock:
            closing, self._loaded = self._loaded, []
        for each in closing:
            each.llm.close()

    def _find(self, choice: Choice) -> _Loaded | None:
        return next((each for each in self._loaded if choice in each.known_as), None)

    def _take(self, choice: Choice, progress: LoadProgress | None) -> _Loaded:
        """Return the model in use by one more; runs in the loader's thread, one at a time."""
        loaded = self._use(choice)
        if loaded is None:
            loaded = self._add(choice, self._load(choice, progress))
        self._close_idle()
        return loaded

    def _use(self, choice: Choice) -> _Loaded | None:
        with self._lock:
            found = self._find(choice)
            if found is not None:
                found.num_users += 1
                self._loaded.remove(found)
                self._loaded.append(found)
            return found

    def _add(self, choice: Choice, llm: LLM) -> _Loaded:
        """Take in `llm`, or the same artifact where another choice had loaded it."""
        with self._lock:
            loaded = next((it for it in self._loaded if _is_same(it.llm, llm)), None)
            if loaded is None:
                loaded = _Loaded(llm)
                self._loaded.append(loaded)
            loaded.known_as.add(choice)
            loaded.num_users += 1
        if loaded.llm is not llm:
            llm.close()
        return loaded

    def _give_back(self, loaded: _Loaded) -> None:
        with self._lock:
            loaded.num_users -= 1
        self._close_idle()

    def _return_unused(self, taking: Future[_Loaded]) -> None:
        if not taking.cancelled() and taking.exception() is None:
            self._give_back(taking.result())

    def _close_idle(self) -> None:
        with self._lock:
            excess = len(self._loaded) - self._keep
            closing = [each for each in self._loaded if each.num_users == 0][: max(excess, 0)]
            self._loaded = [each for each in self._loaded if each not in closing]
        for each in closing:
            each.llm.close()


def _is_same(one: LLM, other: LLM) -> bool:
    formats = (one.kv_choice.kv_format, other.kv_choice.kv_format)
    return one.artifact.directory == other.artifact.directory and formats[0] == formats[1]
