"""From a request's options and its tokens so far to the edits of the next draw's logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling.history import BannedWords, RepeatedRuns, SeenTokens
from dashinfer_lab.sampling.params import SamplingParams
from dashinfer_lab.sampling.state import LogitEdits

__all__ = ["LogitRules"]

_BANNED: Final = int(np.array([-np.inf], np.float32).view(np.int32)[0])


class LogitRules:
    """Penalties, biases and bans of one request; told of every token that it draws.

    words: the bad words as ids.  end_ids: what may not come before min_tokens.  num_ids: ids that
    may be drawn, from 0 on.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        *,
        words: Sequence[Sequence[int]] = (),
        end_ids: Iterable[int] = (),
        num_ids: int,
    ) -> None:
        self._params: Final = params
        self._output: Final[list[int]] = []
        size = params.no_repeat_ngram_size
        self._runs: Final = RepeatedRuns(size, prompt) if size else None
        self._words: Final = BannedWords([word for word in words if max(word) < num_ids])
        self._seen: Final = _seen(params, prompt)
        self._end_ids: Final = frozenset(i for i in end_ids if i < num_ids)
        self._allowed: Final = np.array(params.allowed_token_ids or (), np.int32)
        fixed = list(params.logit_bias.items()) if params.logit_bias else []
        biases = np.zeros((len(fixed), 2), np.int32)
        biases[:, 0] = [token_id for token_id, _ in fixed]
        biases[:, 1] = np.array([bias for _, bias in fixed], np.float32).view(np.int32)
        self._biases: Final = np.concatenate([biases, _bans(self._words.always)])

    @classmethod
    def where_needed(
        cls,
        params: SamplingParams,
        prompt: Sequence[int],
        *,
        words: Sequence[Sequence[int]] = (),
        end_ids: Iterable[int] = (),
        num_ids: int,
    ) -> LogitRules | None:
        """The rules, or None where the logits stay as they are; refuses unknown ids either way."""
        _require_known(params, num_ids)
        needed = (
            params.repetition_penalty != 1,
            params.presence_penalty,
            params.frequency_penalty,
            params.logit_bias,
            params.allowed_token_ids,
            params.min_tokens,
            params.no_repeat_ngram_size,
            words,
        )
        if not any(needed):
            return None
        return cls(params, prompt, words=words, end_ids=end_ids, num_ids=num_ids)

    def observe(self, token_id: int) -> None:
        """Take a drawn token into account."""
        self._output.append(token_id)
        if self._seen is not None:
            self._seen.add(token_id)
        if self._runs is not None:
            self._runs.add(token_id)

    def edits(self) -> LogitEdits | None:
        """What the next draw changes; None where nothing."""
        biases = self._biases
        banned = self._banned_now()
        if banned:
            biases = np.concatenate([biases, _bans(banned)])
        penalised = None if self._seen is None else self._seen.pairs
        if not len(biases) and not len(self._allowed) and (penalised is None or not len(penalised)):
            return None
        params = self._params
        edits = LogitEdits(self._allowed, biases)
        if penalised is None:
            return edits
        return LogitEdits(
            self._allowed,
            biases,
            penalised,
            float(params.repetition_penalty),
            float(params.presence_penalty),
            float(params.frequency_penalty),
        )

    def _banned_now(self) -> set[int]:
        """Ids banned at this place only."""
        banned = set(self._words.after(self._output))
        if self._runs is not None:
            banned.update(self._runs.banned())
        if len(self._output) < self._params.min_tokens:
            banned.update(self._end_ids)
        return banned


def _seen(params: SamplingParams, prompt: Sequence[int]) -> SeenTokens | None:
    """The counts that penalties need: of the prompt's tokens only where they repeat."""
    if params.repetition_penalty != 1:
        return SeenTokens(prompt)
    if params.presence_penalty or params.frequency_penalty:
        return SeenTokens(())
    return None


def _bans(ids: Iterable[int]) -> NDArray[np.int32]:
    listed = sorted(ids)
    pairs = np.full((len(listed), 2), _BANNED, np.int32)
    pairs[:, 0] = listed
    return pairs


def _require_known(params: SamplingParams, num_ids: int) -> None:
    named = {
        "logit_bias": params.logit_bias or (),
        "allowed_token_ids": params.allowed_token_ids or (),
        "stop_token_ids": params.stop_token_ids or (),
        "bad_words_ids": [i for word in params.bad_words_ids or () for i in word],
        "stop_words_ids": [i for word in params.stop_words_ids or () for i in word],
    }
    for name, ids in named.items():
        unknown = [token_id for token_id in ids if token_id >= num_ids]
        if unknown:
            raise RequestError(
                f"{name} names {unknown[:5]}, but tokens are drawn from 0..{num_ids - 1}"
            )
