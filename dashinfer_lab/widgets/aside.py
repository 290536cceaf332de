"""Work on a thread of its own, so that the kernel goes on hearing clicks; knows no view."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dashinfer_lab.errors import DashInferLabError

__all__ = ["begin_aside"]


def begin_aside(work: Callable[[], object]) -> threading.Thread:
    """Begin `work`, which shows its own failures: those of ours end it without a word here."""

    def quietly() -> None:
        try:
            work()
        except DashInferLabError:
            return

    thread = threading.Thread(target=quietly, name="dl-aside", daemon=True)
    thread.start()
    return thread
