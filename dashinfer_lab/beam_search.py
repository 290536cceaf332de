"""Beam search: the likeliest sequences as far as so many beams see, by vLLM's names.

Each round asks every beam for its likeliest next tokens; the prefix cache holds what came before.
Scores and stopping are those of transformers' `generate`: the sum of log-probabilities over the
length of the answer to the power of `length_penalty`. Knows an engine's handles, and no model.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dashinfer_lab.engine import Engine, RequestHandle, RequestOptions
from dashinfer_lab.errors import RequestError
from dashinfer_lab.numbers import is_whole
from dashinfer_lab.sampling import MAX_LOGPROBS, SamplingParams

if TYPE_CHECKING:
    from dashinfer_lab.tokenizer import Tokenizer

__all__ = [
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "search",
]

_WIDEST: Final = 16

EarlyStopping: TypeAlias = bool | Literal["never"]


@dataclass(frozen=True, slots=True)
class BeamSearchParams:
    """How wide and how far to search; a bad value raises `RequestError`.

    beam_width: beams, and sequences found; a draw reports 20 log-probabilities, of which some may
    be of ends.
    max_tokens: of an answer.  ignore_eos: go on past every end-of-sequence id.
    length_penalty: above 0 favours long answers, below 0 short ones.
    early_stopping: True ends with the first `beam_width` answers that ended; False as soon as no
    beam of this length could better the worst of them; "never" as soon as none of any length could.
    temperature: 0, since nothing is drawn.
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False

    def __post_init__(self) -> None:
        wide = _is_count(self.beam_width, _WIDEST)
        _require("beam_width", self.beam_width, wide, f"1 to {_WIDEST}")
        _require("max_tokens", self.max_tokens, _is_count(self.max_tokens), "at least 1")
        _require("ignore_eos", self.ignore_eos, self.ignore_eos in (True, False), "True or False")
        _require("temperature", self.temperature, self.temperature == 0, "0: nothing is drawn")
        number = _is_number(self.length_penalty)
        _require("length_penalty", self.length_penalty, number, "a finite number")
        known = self.early_stopping in (True, False, "never")
        _require("early_stopping", self.early_stopping, known, 'True, False or "never"')

    def score(self, cum_logprob: float, num_tokens: int) -> float:
        """What an answer of so many tokens is worth."""
        return cum_logprob / num_tokens**self.length_penalty


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """A sequence found. tokens: prompt and answer.  text: theirs, where there is a tokenizer."""

    tokens: list[int]
    cum_logprob: float = 0.0
    text: str | None = None
    finish_reason: Literal["stop", "length"] | None = None
    stop_reason: int | None = None


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """What was found for a prompt, the best first."""

    sequences: list[BeamSearchSequence]


class _Search:
    """The beams of one prompt, and the answers that ended."""

    def __init__(
        self,
        prompt: Sequence[int],
        params: BeamSearchParams,
        end_ids: Collection[int],
        options: RequestOptions,
    ) -> None:
        self.options: Final = options
        self.beams = [BeamSearchSequence(list(prompt))]
        self._found: Final[list[tuple[float, int, BeamSearchSequence]]] = []
        self._num_prompt: Final = len(prompt)
        self._params: Final = params
        self._end_ids: Final = frozenset[int]() if params.ignore_eos else frozenset(end_ids)
        self._num_rounds = 0
        self._num_added = 0

    def take(self, likeliest: Sequence[Sequence[tuple[int, float]]]) -> None:
        """Go a token further; `likeliest` holds ids and log-probabilities for each beam."""
        self._num_rounds += 1
        width = self._params.beam_width
        following = [
            replace(beam, tokens=[*beam.tokens, token_id], cum_logprob=beam.cum_logprob + logprob)
            for beam, tokens in zip(self.beams, likeliest, strict=True)
            for token_id, logprob in tokens
        ]
        # A stable order: the better beam first where two are equal.
        best = sorted(following, key=lambda each: -each.cum_logprob)
        ended = [each.tokens[-1] in self._end_ids for each in best]
        at_limit = self._num_rounds == self._params.max_tokens
        for each, is_end in zip(best[:width], ended, strict=False):
            if is_end:
                self._add(replace(each, finish_reason="stop", stop_reason=each.tokens[-1]))
            elif at_limit:
                self._add(replace(each, finish_reason="length"))
        going_on = [each for each, is_end in zip(best, ended, strict=True) if not is_end]
        self.beams = [] if at_limit or self._is_settled(going_on) else going_on[:width]

    def sequences(self) -> list[BeamSearchSequence]:
        """What was found, the best first."""
        return [sequence for _, _, sequence in sorted(self._found, key=lambda each: -each[0])]

    def _add(self, sequence: BeamSearchSequence) -> None:
        length = len(sequence.tokens) - self._num_prompt
        score = self._params.score(sequence.cum_logprob, length)
        self._num_added += 1
        entry = (score, -self._num_added, sequence)
        if len(self._found) < self._params.beam_width:
            heapq.heappush(self._found, entry)
        else:
            heapq.heappushpop(self._found, entry)

    def _is_settled(self, going_on: Sequence[BeamSearchSequence]) -> bool:
        """Whether no beam could come to be among the best."""
        if not going_on:
            return True
        if len(self._found) < self._params.beam_width:
            return False
        if self._params.early_stopping is True:
            return True
        longest = self._params.early_stopping == "never" and self._params.length_penalty > 0
        length = self._params.max_tokens if longest else self._num_rounds
        attainable = self._params.score(going_on[0].cum_logprob, length)
        return attainable <= self._found[0][0]


def search(
    engine: Engine,
    prompts: Sequence[Iterable[int]],
    params: BeamSearchParams,
    tokenizer: Tokenizer | None = None,
    options: Sequence[RequestOptions] | None = None,
) -> list[BeamSearchOutput]:
    """Search for every prompt, all in one batch.

    tokenizer: knows the ends, and the text.  options: how each prompt is served.

    Raises `RequestError` for a prompt that cannot be served, and the error of a beam that has one.
    """
    end_ids = frozenset[int]() if tokenizer is None else frozenset(tokenizer.eos_ids)
    given = [engine.require_room(prompt, params.max_tokens) for prompt in prompts]
    served = options or [RequestOptions()] * len(given)
    one = SamplingParams(
        temperature=0,
        max_tokens=1,
        # The best beams that go on, whichever of the likeliest tokens are ends.
        logprobs=min(params.beam_width + len(end_ids), MAX_LOGPROBS),
        ignore_eos=True,
        detokenize=False,
    )
    searches = [
        _Search(prompt, params, end_ids, how) for prompt, how in zip(given, served, strict=True)
    ]
    while any(each.beams for each in searches):
        _advance(engine, searches, one)
    found = [each.sequences() for each in searches]
    if tokenizer is not None:
        found = [[replace(s, text=tokenizer.decode(s.tokens)) for s in each] for each in found]
    return [BeamSearchOutput(each) for each in found]


def _advance(engine: Engine, searches: Sequence[_Search], one: SamplingParams) -> None:
    """Take every beam of every search a token further."""
    asked: list[list[RequestHandle]] = []
    try:
        asked.extend(
            [
                engine.submit(beam.tokens, one, block=True, options=each.options)
                for beam in each.beams
            ]
            for each in searches
        )
        told = [[_likeliest(handle) for handle in handles] for handles in asked]
    except BaseException:
        for handle in (handle for handles in asked for handle in handles):
            handle.cancel()
        raise
    for each, likeliest in zip(searches, told, strict=True):
        if each.beams:
            each.take(likeliest)


def _likeliest(handle: RequestHandle) -> list[tuple[int, float]]:
    output = handle.completion()
    if output.error is not None:
        raise output.error
    (entries,) = output.logprobs or [{}]
    return [(token_id, entry.logprob) for token_id, entry in entries.items()]


def _is_count(value: object, most: float = math.inf) -> bool:
    return is_whole(value) and 1 <= value <= most


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _require(name: str, value: object, holds: bool, wanted: str) -> None:
    if not holds:
        raise RequestError(f"{name}={value!r:.80} is not possible: it must be {wanted}")
