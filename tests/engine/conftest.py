"""Engines that are closed after the test, and leave no thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

import pytest

from dashinfer_lab.engine import Engine, EngineOptions
from tests.engine.fake_runner import FakeRunner, LetterDecoder

MakeEngine = Callable[..., Engine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Make engines on a fake model; keyword arguments beyond these are `EngineOptions`."""
    before = threading.active_count()
    with ExitStack() as stack:

        def make(
            runner: FakeRunner | None = None,
            *,
            eos_ids: Iterable[int] = (),
            decoder: type[LetterDecoder] | None = LetterDecoder,
            **options: float | None,
        ) -> Engine:
            engine = Engine(
                runner or FakeRunner(),
                eos_ids=eos_ids,
                decoder=decoder,
                options=EngineOptions(**options),
            )
            return stack.enter_context(engine)

        yield make
    assert threading.active_count() <= before
