"""One load at a time, and what there is to say of it; knows no controls and no model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from dashinfer_lab.errors import ConfigError

__all__ = ["LoadingState"]


class LoadingState:
    """What a load said last, as HTML; `changed` is called with every change.

    said: how the last load ended.  progress: how far the present one is.
    """

    def __init__(self, changed: Callable[[], object]) -> None:
        self.said = self.progress = ""
        self._changed: Final = changed
        self._lock: Final = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether something is being loaded."""
        return self._lock.locked()

    @contextmanager
    def only(self, model: str) -> Generator[None]:
        """Load `model` in this block. Raises `ConfigError` while another load goes on."""
        if not self._lock.acquire(blocking=False):
            raise ConfigError(f"{model} is being loaded: wait for it")
        try:
            yield
        finally:
            self._lock.release()
            self.say(self.said)

    def say(self, said: str, progress: str = "") -> None:
        """Tell what there is to see from now on."""
        self.said, self.progress = said, progress
        self._changed()
