"""What a user asks of sampling, in vLLM's names, checked on the spot; knows no model and no text.

An option this version does not implement is no field, and is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling.checks import (
    check_biases,
    check_callables,
    check_flag,
    check_ids,
    check_integer,
    check_number,
    check_sequences,
    check_texts,
    refuse,
)
from dashinfer_lab.sampling.output_kind import RequestOutputKind, check_kind
from dashinfer_lab.sampling.unknown import refusing_unknown

__all__ = ["GREEDY_BELOW", "MAX_LOGPROBS", "LogitsProcessor", "SamplingParams"]

LogitsProcessor = Callable[..., Any]
"""`f(output_ids, logits)` or `f(prompt_ids, output_ids, logits)`, returning logits.

logits: float32 [vocab], the function's to change; an id at -inf is not drawn.
"""

MAX_LOGPROBS: Final = 20
"""Likeliest tokens a request may ask for at each place."""

GREEDY_BELOW: Final = 1e-5
"""A colder temperature only overflows: it is arg-max."""

_MAX_TEMPERATURE: Final = 1e6  # a float32 logit divided by more is all but zero
_MAX_TOP_K: Final = 2**31 - 1
_MAX_SEED: Final = 2**64 - 1
_FLAGS: Final = (
    "ignore_eos",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
)


@refusing_unknown
@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Choose how tokens are drawn and when to stop; a bad value raises `RequestError`.

    n: independent choices for one prompt, 1 where greedy.  temperature: 0 is greedy, the likeliest.
    presence_penalty, frequency_penalty (-2 to 2): for tokens of the output, once and per time.
    repetition_penalty: for tokens of prompt and output, each once: a positive logit is divided by
    it, others multiplied.  min_p: least probability, relative to the likeliest token's; 0 is off.
    top_p: smallest set of tokens with this probability, 1 is off.  top_k: 0 and -1 are off.
    logit_bias: added to logits, by id.  allowed_token_ids: no others are drawn.
    bad_words: texts whose last token is not drawn where it would complete them; bad_words_ids
    gives them as ids.  no_repeat_ngram_size: no run of so many tokens comes twice; 0 is off.
    max_tokens: None takes the rest of the context.  min_tokens: drawn before anything may stop.
    seed: None (or -1) draws a fresh one.
    stop: texts that end the answer, and are part of it only with include_stop_str_in_output.
    stop_token_ids, stop_words_ids: ids, and runs of ids, that end it; their text is not shown.
    ignore_eos: go on past every end-of-sequence id.  logprobs: likeliest tokens to report (0 to
    20) beside the drawn one, as the model rated them; prompt_logprobs: beside the prompt's tokens.
    detokenize: make text.  skip_special_tokens: leave special tokens out of it.
    spaces_between_special_tokens: as in vLLM, without effect on tokenizers that know their spaces.
    output_kind: what each output of a stream holds.  truncate_prompt_tokens: so many last tokens
    of a longer prompt are taken, with -1 as many as fit; None refuses it.
    logits_processors: functions in Python, before all other edits; slow.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: str | Sequence[str] | None = None
    logits_processors: Sequence[LogitsProcessor] | None = None
    stop_words_ids: Sequence[Sequence[int]] | None = None
    bad_words_ids: Sequence[Sequence[int]] | None = None
    no_repeat_ngram_size: int = 0
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    truncate_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_counts()
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        self._normalise()
        if self.stop and not self.detokenize:
            raise RequestError("stop texts need detokenize=True: without text none is found")
        if self.greedy and self.n > 1:
            refuse("n", self.n, f"1 with temperature={self.temperature:g}: all would be equal")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Stop texts; `stop` once it is checked."""
        return check_texts("stop", self.stop)

    def _check_numbers(self) -> None:
        off = " (1 is off)"
        check_number("presence_penalty", self.presence_penalty, -2, 2)
        check_number("frequency_penalty", self.frequency_penalty, -2, 2)
        check_number("repetition_penalty", self.repetition_penalty, 1e-6, 1e6, note=off)
        check_number("temperature", self.temperature, 0, _MAX_TEMPERATURE)
        check_number("top_p", self.top_p, 0, 1, above=True, note=off)
        check_number("min_p", self.min_p, 0, 1)

    def _check_counts(self) -> None:
        check_integer("n", self.n, low=1)
        check_integer("top_k", self.top_k, low=-1, high=_MAX_TOP_K)
        check_integer("min_tokens", self.min_tokens, low=0)
        check_integer("no_repeat_ngram_size", self.no_repeat_ngram_size, low=0)
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, low=1)
            if self.min_tokens > self.max_tokens:
                refuse("min_tokens", self.min_tokens, f"at most max_tokens={self.max_tokens}")
        check_kind("output_kind", self.output_kind)
        if self.truncate_prompt_tokens is not None:
            check_integer("truncate_prompt_tokens", self.truncate_prompt_tokens, low=-1)
            if self.truncate_prompt_tokens == 0:
                refuse("truncate_prompt_tokens", 0, "-1, or at least 1")
        if self.seed is not None:
            check_integer("seed", self.seed, low=-1, high=_MAX_SEED)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), low=0, high=MAX_LOGPROBS)

    def _normalise(self) -> None:
        allowed = None
        if self.allowed_token_ids is not None:
            allowed = check_ids("allowed_token_ids", self.allowed_token_ids)
            if not allowed:
                refuse("allowed_token_ids", self.allowed_token_ids, "None or hold an id at least")
        values = {
            "seed": None if self.seed == -1 else self.seed,
            "stop": check_texts("stop", self.stop),
            "stop_token_ids": check_ids("stop_token_ids", self.stop_token_ids),
            "logit_bias": None if self.logit_bias is None else check_biases(self.logit_bias),
            "allowed_token_ids": allowed,
            "bad_words": check_texts("bad_words", self.bad_words),
            "logits_processors": check_callables("logits_processors", self.logits_processors),
            "stop_words_ids": check_sequences("stop_words_ids", self.stop_words_ids),
            "bad_words_ids": check_sequences("bad_words_ids", self.bad_words_ids),
            "top_k": max(self.top_k, 0),
        }
        if self.greedy:
            values |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
        for name, value in values.items():
            object.__setattr__(self, name, value)
