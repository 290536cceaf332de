"""A running engine, live: who is in the batch, who waits, pages, tokens a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.widgets.charts import line
from dashinfer_lab.widgets.engine_history import SLICE_SECONDS, EngineHistory
from dashinfer_lab.widgets.pulse import Pulse
from dashinfer_lab.widgets.theme import bar, facts, note
from dashinfer_lab.widgets.view import View

if TYPE_CHECKING:
    from dashinfer_lab.engine import Engine
    from dashinfer_lab.events import StepEvent
    from dashinfer_lab.llm import LLM

__all__ = ["EngineView"]

_LINGER_SECONDS: Final = 2.0  # until the rate of the last second has come down to 0


class EngineView(View):
    """Show the engine of `source` while it works; it is watched from the first display on.

    `start` watches without a display, `stop` ends it and leaves the last picture.
    """

    def __init__(
        self,
        source: LLM | Engine,
        *,
        lang: Language | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("engine.title", lang)
        from dashinfer_lab.engine import Engine

        engine = source if isinstance(source, Engine) else getattr(source, "engine", None)
        if not isinstance(engine, Engine):
            raise ConfigError(f"EngineView({source!r:.80}) is not possible: give an LLM or Engine")
        self._engine: Final = engine
        self._clock: Final = clock
        self.history: Final = EngineHistory()
        self._pulse: Final = Pulse(self.redraw, _LINGER_SECONDS)
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> EngineView:
        """Be told of every step from now on."""
        if self._unsubscribe is None:
            self._unsubscribe = self._engine.subscribe(self._take)
        return self

    def stop(self) -> None:
        """Be told of no more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._unsubscribe = None

    def __repr__(self) -> str:
        stats, rate = self._engine.stats(), self.history.tokens_per_second(self._clock())
        return (
            f"<EngineView: {stats.num_running} running, {stats.num_queued} waiting, "
            f"{stats.num_pages_used}/{stats.num_pages} pages, {rate:.1f} tokens/s>"
        )

    def _take(self, event: StepEvent) -> None:
        self.history.add(event)
        if self.live:
            self._pulse.beat()

    def _shown(self) -> None:
        self.start()

    def _end(self) -> None:
        self.stop()
        self._pulse.close()

    def _controls(self) -> list[Any]:
        return [self.picture]

    def _body(self) -> str:
        stats, now = self._engine.stats(), self._clock()
        last, slices = self.history.last, self.history.slices(now)
        step = "–" if last is None else f"{last.total_seconds * 1e3:.1f} ms"
        rows = [
            (self.say("engine.batch"), str(stats.num_running)),
            (self.say("engine.queue"), str(stats.num_queued)),
            (self.say("engine.speed"), f"{self.history.tokens_per_second(now):.1f}"),
            (self.say("engine.step"), step),
            (self.say("engine.pages"), f"{stats.num_pages_used} / {stats.num_pages}"),
            (self.say("engine.finished"), str(stats.num_finished)),
        ]
        pages = bar([(stats.num_pages_used / stats.num_pages, "blue")])
        rates = [each.num_decode_tokens / SLICE_SECONDS for each in slices]
        batch = [float(each.num_requests) for each in slices]
        closed = "" if self._engine.alive else note(self.say("engine.closed"))
        return (
            f"{closed}{facts(rows)}{pages}"
            '<div style="display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));'
            f'gap:16px"><div>{self.say("engine.speed_chart")}'
            f"{line(rates, 'orange', self.say('engine.rate_unit'), 1.0)}</div>"
            f"<div>{self.say('engine.batch_chart')}"
            f"{line(batch, 'blue', self.say('engine.requests'), 1.0)}</div></div>"
        )
