"""Turn drawn ids into text that is safe to show; knows a decoder's interface, no tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from dashinfer_lab.engine.stop_strings import Passed, StopRuns, StopScanner

__all__ = ["DecoderFactory", "IncrementalDecoder", "TextStream"]


class IncrementalDecoder(Protocol):
    """Decodes one sequence; the pieces joined are the text of all its ids."""

    def push(self, token_id: int, /) -> str:
        """Take an id; return the text that became certain."""
        ...

    def finish(self) -> str:
        """Return the text still held back."""
        ...


class DecoderFactory(Protocol):
    """Makes a decoder for each request."""

    def __call__(self, *, skip_special_tokens: bool) -> IncrementalDecoder:
        """Make a fresh decoder."""
        ...


class TextStream:
    """Ids through a scanner for stop runs, a decoder, and a scanner for stop texts.

    Without a decoder all text is empty. include_stop: a stop text is shown too.
    """

    __slots__ = ("_decoder", "_ended", "_runs", "_scanner")

    def __init__(
        self,
        decoder: IncrementalDecoder | None,
        stops: Sequence[str],
        *,
        include_stop: bool = False,
        stop_runs: Sequence[Sequence[int]] = (),
    ) -> None:
        self._decoder: Final = decoder
        self._runs: Final = StopRuns(stop_runs)
        self._scanner: Final = StopScanner(stops, include=include_stop)
        self._ended = False

    def push(self, token_id: int, *, may_stop: bool = True) -> Passed:
        """Take an id; return the text to show and the stop it completed, if any.

        Without `may_stop` nothing is looked for, from the first id up to the first that may.
        """
        if not may_stop:
            return Passed(self._decoded((token_id,)), None)
        ids, run = self._runs.push(token_id)
        passed = self._scanner.push(self._decoded(ids))
        if passed.stop is None and run is not None:
            rest = self.finish()
            return Passed(passed.text + rest.text, rest.stop or run)
        self._ended = passed.stop is not None
        return passed

    def finish(self) -> Passed:
        """Return the rest, once: what scanners and decoder held back."""
        if self._ended:
            return Passed("", None)
        self._ended = True
        text = self._decoded(self._runs.finish())
        if self._decoder is not None:
            text += self._decoder.finish()
        text, stop = self._scanner.push(text)
        return Passed(text if stop else text + self._scanner.finish(), stop)

    def _decoded(self, ids: Sequence[int]) -> str:
        decoder = self._decoder
        return "" if decoder is None else "".join([decoder.push(token_id) for token_id in ids])
