"""How one request draws: its options, seed and rules, kept up with the tokens it has drawn."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.sampling import LogitRules, LogitsProcessor, SamplingParams, SamplingState

__all__ = ["Drawing"]

_WITH_PROMPT: Final = 3


class Drawing:
    """Makes the state of each draw; told of every token.

    words: the bad words as ids.  end_ids: what may not come before min_tokens.  num_ids: ids that
    may be drawn, from 0 on, of `vocab_size`.  Raises `RequestError` for ids beyond.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        *,
        seed: int,
        choice: int,
        words: Sequence[Sequence[int]] = (),
        end_ids: Iterable[int] = (),
        num_ids: int,
        vocab_size: int,
    ) -> None:
        self._params: Final = params
        self._seed: Final = seed
        self._choice: Final = choice
        self._num_ids: Final = num_ids if num_ids < vocab_size else None
        self._rules: Final = LogitRules.where_needed(
            params, prompt, words=words, end_ids=end_ids, num_ids=num_ids
        )
        self._processors: Final = [
            (function, _takes_prompt(function)) for function in params.logits_processors or ()
        ]
        self._prompt: Final = prompt
        self._output: Final[list[int]] = []

    @property
    def num_ids(self) -> int | None:
        """Ids that may be drawn; None is all."""
        return self._num_ids

    def observe(self, token_id: int) -> None:
        """Take a drawn token into account."""
        if self._processors:
            self._output.append(token_id)
        if self._rules is not None:
            self._rules.observe(token_id)

    def state(self, position: int) -> SamplingState:
        """How to draw the token that will stand at `position`."""
        params = self._params
        return SamplingState(
            temperature=0.0 if params.greedy else float(params.temperature),
            top_k=params.top_k,
            top_p=float(params.top_p),
            seed=self._seed,
            choice=self._choice,
            position=position,
            num_logprobs=params.logprobs,
            min_p=float(params.min_p),
            num_ids=self._num_ids,
            edits=None if self._rules is None else self._rules.edits(),
            ruled=self._rules is not None,
            process=self._process if self._processors else None,
        )

    def _process(self, logits: NDArray[np.float32]) -> Any:
        """Send logits through all functions, which may keep and change what they are given."""
        for function, takes_prompt in self._processors:
            before = (list(self._prompt),) if takes_prompt else ()
            logits = function(*before, list(self._output), logits)
        return logits


def _takes_prompt(function: LogitsProcessor) -> bool:
    try:
        return len(inspect.signature(function).parameters) == _WITH_PROMPT
    except (TypeError, ValueError):  # a compiled function without a signature
        return False
