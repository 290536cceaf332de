"""How a token is drawn, as data: a user's wishes, one draw's state, log-probabilities."""

from __future__ import annotations

from dashinfer_lab.sampling.logprobs import Logprob, TokenLogprobs
from dashinfer_lab.sampling.output_kind import RequestOutputKind
from dashinfer_lab.sampling.params import MAX_LOGPROBS, LogitsProcessor, SamplingParams
from dashinfer_lab.sampling.rules import LogitRules
from dashinfer_lab.sampling.state import LogitEdits, SamplingState
from dashinfer_lab.sampling.words import bad_word_ids

__all__ = [
    "MAX_LOGPROBS",
    "LogitEdits",
    "LogitRules",
    "LogitsProcessor",
    "Logprob",
    "RequestOutputKind",
    "SamplingParams",
    "SamplingState",
    "TokenLogprobs",
    "bad_word_ids",
]
