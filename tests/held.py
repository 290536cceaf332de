"""Hold an engine on its own thread, so that no test depends on who is quicker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dashinfer_lab.engine import Engine
from dashinfer_lab.events import StepEvent


@contextmanager
def held(engine: Engine) -> Iterator[Callable[[], None]]:
    """Let the engine take a step that leaves requests running, and wait until the block ends.

    The step's tokens are told. Yields what lets it go on before; a closed engine goes on anyway.
    """
    go = threading.Event()

    def wait(step: StepEvent) -> None:
        # A step before, which may be told only now, left none running.
        while step.num_requests > step.num_finished and engine.alive and not go.wait(0.01):
            pass

    unsubscribe = engine.subscribe(wait)
    try:
        yield go.set
    finally:
        unsubscribe()
        go.set()
