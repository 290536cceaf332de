"""How a token is drawn, as data: a user's wishes, one draw's state, log-probabilities."""

from __future__ import annotations

from dashinfer_lab.sampling.logprobs import Logprob, TokenLogprobs
from dashinfer_lab.sampling.params import MAX_LOGPROBS, SamplingParams
from dashinfer_lab.sampling.state import SamplingState

__all__ = ["MAX_LOGPROBS", "Logprob", "SamplingParams", "SamplingState", "TokenLogprobs"]
