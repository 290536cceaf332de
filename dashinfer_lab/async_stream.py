"""One prompt's outputs as they grow, for `async for` in an event loop and `for` outside one.

`await` gives the whole answer at once.

              iterated                all choices ended
unstarted ──────────────▶ running ─────────────────────▶ ended
    │                        │  loop left, task cancelled, stream dropped, aborted
    └── aborted ─────────────┴────────────────────────────────▶ cancelled in the engine

No thread waits here: the engine's thread tells the event loop that there is news.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from dashinfer_lab.engine import RequestHandle
from dashinfer_lab.errors import EngineBusyError, RequestError
from dashinfer_lab.outputs import CompletionOutput, RequestOutput
from dashinfer_lab.sampling import RequestOutputKind

__all__ = ["Begin", "RequestStream"]

Begin = Callable[[bool], Sequence[RequestHandle]]
"""Submits the prompt; lets the caller wait for room in the queue, or raises `EngineBusyError`."""

_RETRY_SECONDS: Final = 0.02


class RequestStream:
    """Iterate once, or await once. Each `RequestOutput` holds all so far, or what `kind` says.

    The last is finished.

    The request begins with the iteration, where a refused prompt raises `RequestError`.
    """

    def __init__(
        self,
        request_id: str,
        prompt: str | None,
        begin: Begin,
        kind: RequestOutputKind = RequestOutputKind.CUMULATIVE,
    ) -> None:
        self.request_id: Final = request_id
        self._prompt: Final = prompt
        self._begin: Final = begin
        self._kind = kind
        self._iterated = False
        self._aborted = False
        self._handles: Sequence[RequestHandle] = ()
        self._told = (-1, 0)

    def cancel(self) -> None:
        """End it in the engine, queued or running, within a step. Idempotent."""
        self._aborted = True
        for handle in self._handles:
            handle.cancel()

    async def aclose(self) -> None:
        """End it, as one closes an asynchronous generator."""
        self.cancel()

    def __await__(self) -> Generator[Any, None, RequestOutput]:
        """Wait for the end in an event loop: the output that `LLM.generate` would give."""
        return self._last().__await__()

    def __aiter__(self) -> AsyncIterator[RequestOutput]:
        self._require_first()
        return _Iteration(self)

    def __iter__(self) -> Iterator[RequestOutput]:
        self._require_first()
        return self._outputs()

    async def submit_async(self) -> None:
        """Begin; while the queue is full, other tasks go on."""
        while not self._aborted:
            try:
                self._handles = self._begin(False)
                return
            except EngineBusyError:
                await asyncio.sleep(_RETRY_SECONDS)

    def listen(self, listener: Callable[[], None]) -> None:
        """Be told of every event of every choice, or of every end where the last output counts."""
        for handle in self._handles:
            handle.listen(listener, end_only=self._kind is RequestOutputKind.FINAL_ONLY)

    def news(self) -> RequestOutput | None:
        """What there is, if it is more than was told last; the errors of an engine that failed."""
        final_only = self._kind is RequestOutputKind.FINAL_ONLY
        if final_only and not all(handle.ended for handle in self._handles):
            return None
        # Counted first, which receives what is there.
        num_events = sum(handle.num_events for handle in self._handles)
        now = (num_events, sum(handle.finished for handle in self._handles))
        if now in (self._told, (0, 0)):
            return None
        self._told = now
        for handle in self._handles:
            if handle.finished:
                handle.completion()  # raises where it was the engine that failed
        if final_only and not self.ended:
            return None
        first = self._handles[0]
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt,
            prompt_token_ids=first.prompt_token_ids,
            outputs=self._choices(),
            finished=self.ended,
            metrics=first.metrics,
            prompt_logprobs=first.prompt_logprobs,
        )

    def _choices(self) -> list[CompletionOutput]:
        if self._kind is not RequestOutputKind.DELTA:
            return [handle.output for handle in self._handles]
        new = [handle.take_output() for handle in self._handles]
        return [each for each in new if each.token_ids or each.finish_reason is not None]

    @property
    def ended(self) -> bool:
        """Whether the last output was told."""
        return self._told[1] == len(self._handles)

    async def _last(self) -> RequestOutput:
        last: RequestOutput | None = None
        self._kind = RequestOutputKind.FINAL_ONLY
        async for output in self:
            last = output
        if last is None:
            raise RequestError(f"request {self.request_id} was aborted before it began")
        return last

    def _outputs(self) -> Iterator[RequestOutput]:
        """Wait on this thread; leaving the loop cancels."""
        try:
            if not self._aborted:
                self._handles = self._begin(True)
            while not self.ended:
                for handle in self._handles:
                    if not handle.finished:
                        handle.get()
                        break
                output = self.news()
                if output is not None:
                    yield output
        finally:
            self.cancel()

    def _require_first(self) -> None:
        if self._iterated:
            raise RequestError(f"request {self.request_id} was iterated already: generate again")
        self._iterated = True

    def __repr__(self) -> str:
        tokens, ended = self._told
        state = "ended" if self._handles and ended == len(self._handles) else "open"
        return f"<RequestStream {self.request_id}: {max(tokens, 0)} tokens, {state}>"


class _Iteration:
    """What `async for` holds, and lets go of when it is left: then the request is cancelled."""

    def __init__(self, stream: RequestStream) -> None:
        self._stream: Final = stream
        self._news: Final = asyncio.Event()
        self._begun = False
        left = weakref.finalize(self, stream.cancel)
        left.atexit = False  # at exit the engine closes anyway

    def __aiter__(self) -> AsyncIterator[RequestOutput]:
        return self

    async def __anext__(self) -> RequestOutput:
        try:
            output = await self._next()
        except BaseException:  # a cancelled task, an interrupt, an engine that failed
            self._stream.cancel()
            raise
        if output is None:
            raise StopAsyncIteration
        return output

    async def _next(self) -> RequestOutput | None:
        stream = self._stream
        if not self._begun:
            self._begun = True
            await stream.submit_async()
            stream.listen(_teller(asyncio.get_running_loop(), self._news))
        while not stream.ended:
            self._news.clear()
            output = stream.news()
            if output is not None:
                return output
            await self._news.wait()
        return None


def _teller(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> Callable[[], None]:
    """Make what the engine's thread calls; it holds the loop, not the request."""

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(news.set)

    return tell
