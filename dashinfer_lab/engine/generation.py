"""A request that draws tokens; knows sampling options and text, not the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dashinfer_lab.engine.batch import Chunk, ChunkResult
from dashinfer_lab.engine.drawing import Drawing
from dashinfer_lab.engine.event_queue import EventQueue
from dashinfer_lab.engine.foreign import described
from dashinfer_lab.engine.prompt_scores import PromptScores
from dashinfer_lab.engine.request import Request, RequestState, Span
from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.engine.text_stream import TextStream
from dashinfer_lab.errors import DashInferLabError, EngineError, TokenizerError
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.outputs import FinishReason, StopReason, TokenEvent
from dashinfer_lab.sampling import SamplingParams, SamplingState, TokenLogprobs

__all__ = ["GenerationRequest"]


class GenerationRequest(Request):
    """Computes a prompt, then draws up to `max_tokens` tokens; every one becomes a `TokenEvent`.

    The last drawn token is never computed: nothing follows it. With `scores`, the prompt's rows of
    logits are rated on the way.
    """

    def __init__(
        self,
        request_id: int,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        max_tokens: int,
        drawing: Drawing,
        eos_ids: frozenset[int],
        text: TextStream,
        scores: PromptScores | None = None,
        arrival_seconds: float,
        options: RequestOptions | None = None,
        leader: Request | None = None,
        num_cut_tokens: int = 0,
    ) -> None:
        most = len(prompt) + max_tokens - 1
        super().__init__(request_id, prompt, most, arrival_seconds, options, leader)
        self.events: Final = EventQueue()
        self._drawing: Final = drawing
        self._scores: Final = scores
        self._num_prompt_tokens: Final = len(prompt)
        self._num_cut_tokens: Final = num_cut_tokens
        self._max_tokens: Final = max_tokens
        self._min_tokens: Final = params.min_tokens
        self._eos_ids: Final = frozenset[int]() if params.ignore_eos else eos_ids
        self._stop_ids: Final = frozenset(params.stop_token_ids or ())
        self._ending_ids: Final = tuple(self._stop_ids | self._eos_ids)
        self._text: Final = text
        self._ends_by_text: Final = bool(params.stop_strings or params.stop_words_ids)
        self._scores_told = False
        self._end: TokenEvent | None = None
        self._first_token_seconds: float | None = None
        self._last_token_seconds: float | None = None

    @property
    def num_skippable(self) -> int:
        """First tokens that need not be computed: none whose logits or rating are wanted."""
        if self._scores is None or self._scores.complete:
            return self.num_tokens - 1
        return min(len(self._scores.found), self.num_tokens - 1)

    def plan(self, max_tokens: int, max_rows: int) -> Span | None:
        """Choose the next span; only the one that reaches the last known token needs logits."""
        remaining = self.num_tokens - self.num_computed
        length = min(remaining, max_tokens)
        if self._scores is not None and not self._scores.complete and length > 0:
            return self._scores.plan(self.num_computed, length, max_rows)
        reaches_end = length == remaining
        if length < 1 or (reaches_end and max_rows < 1):
            return None
        return Span(self.num_computed, length, "last" if reaches_end else "none")

    def chunk(self, span: Span, num_ahead: int = 0) -> Chunk:
        """Write a span in the form the model takes, with the pages of `num_ahead` more tokens."""
        chunk = super().chunk(span, num_ahead)
        scoring = None if self._scores is None else self._scores.scoring(span)
        return chunk if scoring is None else replace(chunk, scoring=scoring)

    def sampling(self, span: Span) -> SamplingState | None:
        """How to draw the token at position `span.end`, if nothing known stands there."""
        draws = span.logit_rows != "none" and span.end == self.num_tokens
        return self._drawing.state(span.end) if draws else None

    @property
    def tokens_left(self) -> int:
        """Most tokens that may still be drawn."""
        return self._max_tokens - (self.num_tokens - self._num_prompt_tokens)

    @property
    def read_as_it_comes(self) -> bool:
        """Whether somebody looks at tokens before the last."""
        return not self.events.whole

    @property
    def waits_for_end(self) -> bool:
        """Whether nobody looks at a token before the last, nor may a text end it earlier."""
        return not self.read_as_it_comes and not self._ends_by_text

    @property
    def stop_ids(self) -> Sequence[int]:
        """Drawn ids after which the request ends."""
        return self._ending_ids

    def accept(self, span: Span, result: ChunkResult, now_seconds: float) -> None:
        """Take the drawn token, if the span reached the end of what is known."""
        if self._scores is not None:
            self._scores.take(result.prompt_logprobs)
        if span.logit_rows == "none" or span.end < self.num_tokens:
            return
        if result.token_id is None:
            raise EngineError(f"the model drew no token for request {self.request_id}")
        if self.state is RequestState.PREFILL:
            self.enter(RequestState.DECODE)
        if self._first_token_seconds is None:
            self._first_token_seconds = now_seconds
        self._last_token_seconds = now_seconds
        self.token_ids.append(result.token_id)
        self._drawing.observe(result.token_id)
        try:
            self._emit(result.token_id, result.logprobs, now_seconds)
        except BaseException as error:  # noqa: BLE001  # a foreign decoder: only this may end
            failure = TokenizerError(
                f"request {self.request_id}: token {result.token_id} "
                f"could not be decoded: {described(error)}"
            )
            failure.__cause__ = error
            self._finish("error", now_seconds, token_id=result.token_id, error=failure)

    def fail(self, error: DashInferLabError, now_seconds: float) -> None:
        """Finish with an error; the text that was held back comes with the last event."""
        self._finish("error", now_seconds, text=self._rest(), error=error)

    def cancel(self, now_seconds: float) -> None:
        """Finish early; the text that was held back comes with the last event."""
        self._finish("cancelled", now_seconds, text=self._rest())

    def metrics(self, finished_seconds: float | None = None) -> RequestMetrics:
        """Times and counts so far."""
        return RequestMetrics(
            arrival_seconds=self.arrival_seconds,
            first_scheduled_seconds=self.first_scheduled_seconds,
            first_token_seconds=self._first_token_seconds,
            last_token_seconds=self._last_token_seconds,
            finished_seconds=finished_seconds,
            num_prompt_tokens=self._num_prompt_tokens,
            num_output_tokens=self.num_tokens - self._num_prompt_tokens,
            num_preemptions=self.num_preemptions,
            num_cached_tokens=self.num_cached_tokens,
            num_cut_tokens=self._num_cut_tokens,
        )

    def _emit(self, token_id: int, logprobs: TokenLogprobs | None, now: float) -> None:
        """Tell the token; finish where an end id, a stop or the length says so."""
        stopped_by_id = token_id in self._stop_ids
        if stopped_by_id or token_id in self._eos_ids:
            # An id that ends the text is no part of it.
            text, stop = self._text.finish()
            reason: StopReason | None = stop or (token_id if stopped_by_id else None)
            self._finish("stop", now, token_id, text, logprobs, reason)
            return
        num_drawn = self.num_tokens - self._num_prompt_tokens
        text, stop = self._text.push(token_id, may_stop=num_drawn > self._min_tokens)
        at_limit = num_drawn >= self._max_tokens
        if stop is None and at_limit:
            rest, stop = self._text.finish()
            text += rest
        if stop is not None:
            self._finish("stop", now, token_id, text, logprobs, stop)
        elif at_limit:
            self._finish("length", now, token_id, text, logprobs)
        else:
            scores = self._new_scores()
            self.events.put(TokenEvent(token_id, text, logprobs, now, prompt_logprobs=scores))

    def _new_scores(self) -> Sequence[TokenLogprobs] | None:
        """The prompt's log-probabilities, with the first event that can have them."""
        if self._scores is None or self._scores_told or not self._scores.complete:
            return None
        self._scores_told = True
        return tuple(self._scores.found)

    def _rest(self) -> str:
        try:
            return self._text.finish().text
        except BaseException:  # noqa: BLE001  # the request ends anyway, and says why it does
            return ""

    def _finish(
        self,
        reason: FinishReason,
        now: float,
        token_id: int | None = None,
        text: str = "",
        logprobs: TokenLogprobs | None = None,
        stop_reason: StopReason | None = None,
        error: DashInferLabError | None = None,
    ) -> None:
        self.leave()
        metrics = self.metrics(finished_seconds=now)
        self._end = TokenEvent(
            token_id,
            text,
            logprobs,
            now,
            reason,
            stop_reason,
            error,
            metrics,
            self._new_scores(),
        )

    def tell_end(self) -> None:
        """Give the last event."""
        if self._end is not None:
            self.events.put(self._end)
