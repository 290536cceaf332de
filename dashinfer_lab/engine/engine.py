"""The engine as callers see it: any thread submits, one thread of its own computes."""

from __future__ import annotations

import itertools
import secrets
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.engine.admission import Capacity
from dashinfer_lab.engine.batch import ModelRunner
from dashinfer_lab.engine.drawing import Drawing
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.handle import RequestHandle
from dashinfer_lab.engine.logit_request import LogitRequest
from dashinfer_lab.engine.loop import EngineLoop
from dashinfer_lab.engine.options import EngineOptions
from dashinfer_lab.engine.prompt_scores import PromptScores
from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.engine.text_stream import DecoderFactory, TextStream
from dashinfer_lab.engine.waiting import take
from dashinfer_lab.errors import DashInferLabError, RequestError
from dashinfer_lab.events import StepEvent
from dashinfer_lab.sampling import SamplingParams, bad_word_ids

__all__ = ["Engine", "EngineStats"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A glance at the engine: what it holds now, and totals since it began."""

    num_running: int
    num_queued: int
    num_pages_used: int
    num_pages: int
    num_steps: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_finished: int
    num_preempted: int
    num_refused: int
    num_pages_cached: int = 0
    num_prefix_hits: int = 0
    num_cached_tokens: int = 0
    num_expired: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all choices of a prompt have in common."""

    ids: list[int]
    params: SamplingParams
    max_tokens: int
    seed: int
    words: Sequence[Sequence[int]]
    options: RequestOptions
    num_cut: int


class Engine:
    """Batch requests continuously on one model, which it owns and closes.

    eos_ids: ids that end an answer.  decoder: makes an incremental decoder for each request;
    without it events have no text and stop texts are refused.  token_text: names ids in logprobs.
    encode: spells bad words.  num_ids: ids with a meaning, from 0 on; a model may have rows for
    more, which are never drawn.
    """

    def __init__(
        self,
        runner: ModelRunner,
        *,
        eos_ids: Iterable[int] = (),
        decoder: DecoderFactory | None = None,
        token_text: Callable[[int], str] | None = None,
        encode: Callable[[str], Sequence[int]] | None = None,
        num_ids: int | None = None,
        options: EngineOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity: Final = Capacity.of(runner)
        self._eos_ids: Final = frozenset(eos_ids)
        self._decoder: Final = decoder
        self._token_text: Final = token_text
        self._encode: Final = encode
        self._num_ids: Final = min(num_ids or runner.vocab_size, runner.vocab_size)
        self._clock: Final = clock
        self._ids: Final = itertools.count()
        self._loop: Final = EngineLoop(runner, options or EngineOptions(), clock)
        self._finalizer: Final = weakref.finalize(self, self._loop.close)

    def submit(
        self,
        token_ids: Iterable[int],
        params: SamplingParams | None = None,
        *,
        block: bool = False,
        options: RequestOptions | None = None,
    ) -> RequestHandle:
        """Queue one prompt with one choice; refused ones raise `RequestError`.

        A full queue raises `EngineBusyError`, or with `block` lets the caller wait.
        """
        params = _checked("params", params or SamplingParams(), SamplingParams)
        if params.n != 1:
            raise RequestError(
                f"n={params.n} has several answers, one stream has one: take LLM.generate, or "
                "LLM.engine.submit_choices for a handle each"
            )
        return self.submit_choices(token_ids, params, block=block, options=options)[0]

    def submit_choices(
        self,
        token_ids: Iterable[int],
        params: SamplingParams,
        *,
        block: bool = False,
        options: RequestOptions | None = None,
    ) -> list[RequestHandle]:
        """Queue `params.n` choices of one prompt, all or none; they share a seed and differ.

        The first computes the prompt, whose pages the others share. Raises as `submit` does.
        """
        served = _checked("options", options or RequestOptions(), RequestOptions)
        params = _checked("params", params, SamplingParams)
        self._loop.mailbox.require_possible(params.n)
        given = self._capacity.check_ids(token_ids)
        num_cut = self._capacity.num_cut(
            len(given), params.truncate_prompt_tokens, params.max_tokens
        )
        ids = given[num_cut:]
        max_tokens = self._capacity.max_new_tokens(len(ids), params.max_tokens)
        if params.stop_strings and self._decoder is None:
            raise RequestError("stop texts need a tokenizer, and this engine has none")
        seed = secrets.randbits(64) if params.seed is None else params.seed
        words = self._bad_words(params)
        asked = _Asked(ids, params, max_tokens, seed, words, served, num_cut)
        requests = [self._request(asked, 0, None)]
        for choice in range(1, params.n):
            requests.append(self._request(asked, choice, requests[0]))
        mailbox = self._loop.mailbox
        # Made before posting: an interrupt in between drops the handles, which cancels.
        handles = [
            RequestHandle(r.request_id, choice, ids, r.events, mailbox, self._token_text)
            for choice, r in enumerate(requests)
        ]
        mailbox.submit(requests, block=block)
        return handles

    @property
    def longest_prompt(self) -> int:
        """Tokens of a prompt beside which one can be drawn."""
        return self._capacity.longest_prompt

    def require_room(self, token_ids: Iterable[int], num_new: int) -> list[int]:
        """A prompt's ids; raises `RequestError` where it could not be served so many new tokens."""
        ids = self._capacity.check_ids(token_ids)
        self._capacity.max_new_tokens(len(ids), num_new)
        return ids

    def compute_logits(
        self, token_ids: Iterable[int], positions: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """Return float32 [T, vocab], or a row for each position asked for, in that order.

        Row t holds the logits of the token after `token_ids[t]`. Batched along with other
        requests; an interrupt cancels.
        """
        ids = self._capacity.check_ids(token_ids)
        wanted = self._capacity.check_positions(len(ids), positions)
        if not wanted:
            return np.empty((0, self._capacity.vocab_size), np.float32)
        rows, order = np.unique(wanted, return_inverse=True)
        request = LogitRequest(
            next(self._ids),
            ids,
            [int(row) for row in rows],
            vocab_size=self._capacity.vocab_size,
            arrival_seconds=self._clock(),
        )
        try:
            self._loop.mailbox.require_other_thread()
            self._loop.mailbox.submit([request], block=True)
            answer = take(request.answer)
        except BaseException:
            self._loop.mailbox.cancel(request.request_id)
            raise
        if isinstance(answer, DashInferLabError):
            raise answer
        return answer if positions is None else answer[order]

    def subscribe(self, subscriber: Callable[[StepEvent], None]) -> Callable[[], None]:
        """Call back on the engine's thread after each step; returns what ends it."""
        self._loop.core.subscribe(subscriber)
        return lambda: self._loop.core.unsubscribe(subscriber)

    def stats(self) -> EngineStats:
        """Read what the engine holds now; other threads go on meanwhile."""
        core, mailbox = self._loop.core, self._loop.mailbox
        scheduler, totals = core.scheduler, core.totals
        return EngineStats(
            num_running=len(scheduler.running),
            num_queued=len(scheduler.waiting) + mailbox.num_submitted,
            num_pages_used=core.pool.num_used,
            num_pages=core.pool.num_pages,
            num_steps=totals.num_steps,
            num_prefill_tokens=totals.num_prefill_tokens,
            num_decode_tokens=totals.num_decode_tokens,
            num_finished=totals.num_finished,
            num_preempted=totals.num_preempted,
            num_refused=mailbox.num_refused,
            num_pages_cached=core.pool.num_idle,
            num_prefix_hits=totals.num_prefix_hits,
            num_cached_tokens=totals.num_cached_tokens,
            num_expired=totals.num_expired,
        )

    @property
    def alive(self) -> bool:
        """Whether requests are taken: not closed, and the model has not failed."""
        return self._loop.alive

    def close(self) -> None:
        """End open requests with `EngineClosedError`, join the thread, close the model."""
        self._loop.close()

    def _request(
        self, asked: _Asked, choice: int, leader: GenerationRequest | None
    ) -> GenerationRequest:
        ids, params = asked.ids, asked.params
        drawing = Drawing(
            params,
            ids,
            seed=asked.seed,
            choice=choice,
            words=asked.words,
            end_ids=self._eos_ids.union(params.stop_token_ids or ()),
            num_ids=self._num_ids,
            vocab_size=self._capacity.vocab_size,
        )
        scores = None
        # The choices share a prompt: the first one rates it.
        if params.prompt_logprobs is not None and leader is None:
            scores = PromptScores(ids, params.prompt_logprobs, drawing.num_ids)
        return GenerationRequest(
            next(self._ids),
            ids,
            params,
            max_tokens=asked.max_tokens,
            drawing=drawing,
            eos_ids=self._eos_ids,
            text=self._text_stream(params),
            scores=scores,
            arrival_seconds=self._clock() if leader is None else leader.arrival_seconds,
            options=asked.options,
            leader=leader,
            num_cut_tokens=asked.num_cut,
        )

    def _bad_words(self, params: SamplingParams) -> list[tuple[int, ...]]:
        words = [tuple(word) for word in params.bad_words_ids or ()]
        if params.bad_words:
            if self._encode is None:
                raise RequestError("bad words need a tokenizer, and this engine has none")
            words += bad_word_ids(params.bad_words, self._encode)
        return words

    def _text_stream(self, params: SamplingParams) -> TextStream:
        decoder = None
        if self._decoder is not None and params.detokenize:
            decoder = self._decoder(skip_special_tokens=params.skip_special_tokens)
        return TextStream(
            decoder,
            params.stop_strings,
            include_stop=params.include_stop_str_in_output,
            stop_runs=params.stop_words_ids or (),
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        stats = self.stats()
        return (
            f"<Engine {'alive' if self.alive else 'closed'}: {stats.num_running} running, "
            f"{stats.num_queued} queued, {stats.num_pages_used}/{stats.num_pages} pages used>"
        )


def _checked(name: str, value: object, kind: type[T]) -> T:
    """A value of the kind it must be; raises `RequestError`."""
    if not isinstance(value, kind):
        raise RequestError(f"{name}={value!r:.80} is not possible: give {kind.__name__}, or None")
    return value
