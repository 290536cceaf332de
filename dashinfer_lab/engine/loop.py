"""The engine's thread and what it owns; holds no reference to the engine that callers hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from dashinfer_lab.engine.batch import ModelRunner
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.foreign import described
from dashinfer_lab.engine.mailbox import Mailbox
from dashinfer_lab.engine.options import EngineOptions
from dashinfer_lab.engine.waiting import join
from dashinfer_lab.errors import DashInferLabError, EngineClosedError, EngineError

__all__ = ["EngineLoop"]

_PAUSE_SECONDS: Final = 5e-3
"""Before each moment of rest: who has just got an answer should have the interpreter."""


class EngineLoop:
    """Collect, step, repeat; with nothing to do, let the runner rest now and then, and sleep."""

    def __init__(
        self, runner: ModelRunner, options: EngineOptions, clock: Callable[[], float]
    ) -> None:
        self.core: Final = EngineCore(runner, options, clock)
        scheduler = self.core.scheduler
        self.mailbox: Final = Mailbox(
            options.max_queued, lambda: len(scheduler.waiting), lambda: runner.hurry(True)
        )
        self._runner: Final = runner
        self._close_error: Exception | None = None
        # A daemon, because threads that are not are joined before exit handlers run, and it is
        # such a handler that closes a forgotten engine.
        self._thread: Final = threading.Thread(
            target=self._serve, name="dashinfer-lab-engine", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests are taken."""
        return self.mailbox.closed_by is None

    def close(self) -> None:
        """End open requests with `EngineClosedError`, join the thread, close the model.

        Waits for the step that runs. Idempotent. Raises `EngineError` where the model fails to
        close, the first time.
        """
        self.mailbox.close(_closed)
        if threading.current_thread() is not self._thread:
            join(self._thread)
        error, self._close_error = self._close_error, None
        if error is not None:
            raise EngineError(f"the model failed to close: {error!r}") from error

    def _serve(self) -> None:
        try:
            while self._collect():
                if self.core.has_work:
                    self.core.step()
        except BaseException as error:  # noqa: BLE001  # all callers must hear of it
            self.mailbox.close(_stopped_by(error))
        finally:
            self._end()

    def _collect(self) -> bool:
        """Take in what was posted; what is posted from here on hurries the step that follows."""
        self._runner.hurry(False)
        idle = not self.core.has_work
        while idle and not self.mailbox.has_news(_PAUSE_SECONDS) and self._runner.rest():
            pass
        return self.mailbox.collect(self.core.add, self.core.cancel, idle=idle)

    def _end(self) -> None:
        self.mailbox.close(_closed)
        reason = self.mailbox.closed_by or _closed
        # What was posted before the closing, and after the last collection, ends too.
        self.mailbox.collect(
            lambda request: self.core.refuse(request, reason()), self.core.cancel, idle=False
        )
        self.core.fail_all(reason)
        try:
            self._runner.close()
        except Exception as error:  # noqa: BLE001  # told by close()
            self._close_error = error


def _closed() -> EngineClosedError:
    return EngineClosedError("the engine is closed; make a new one")


def _stopped_by(cause: BaseException) -> Callable[[], DashInferLabError]:
    """Make errors of one cause: one each, since raising an error writes its traceback into it."""

    def error() -> DashInferLabError:
        fresh = EngineError(
            str(cause)
            if isinstance(cause, EngineError)
            else f"the engine has stopped after an error of its own: {described(cause)}; make a "
            "new one"
        )
        fresh.__cause__ = cause.__cause__ if isinstance(cause, EngineError) else cause
        return fresh

    return error
