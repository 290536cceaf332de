"""Turn drawn ids into text that is safe to show; knows a decoder's interface, no tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from dashinfer_lab.engine.stop_strings import Passed, StopScanner

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
    """A decoder, then a scanner for stop texts. Without a decoder all text is empty."""

    __slots__ = ("_decoder", "_ended", "_scanner")

    def __init__(self, decoder: IncrementalDecoder | None, stops: Sequence[str]) -> None:
        self._decoder: Final = decoder
        self._scanner: Final = StopScanner(stops)
        self._ended = False

    def push(self, token_id: int) -> Passed:
        """Take an id; return the text to show and the stop text it completed, if any."""
        if self._decoder is None:
            return Passed("", None)
        return self._pass(self._decoder.push(token_id))

    def finish(self) -> Passed:
        """Return the rest, once: what decoder and scanner held back."""
        if self._ended or self._decoder is None:
            return Passed("", None)
        text, stop = self._pass(self._decoder.finish())
        self._ended = True
        return Passed(text if stop else text + self._scanner.finish(), stop)

    def _pass(self, text: str) -> Passed:
        passed = self._scanner.push(text)
        self._ended = passed.stop is not None
        return passed
