"""What the compiled sampler needs for one draw; knows no request and no text."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SamplingState"]


@dataclass(frozen=True, slots=True)
class SamplingState:
    """One draw. Temperature 0 is arg-max; top_k 0 and top_p 1 are off.

    The random number depends on (seed, choice, position) alone, where `position` is the place the
    drawn token will take in its sequence: the same with whatever company, and after recomputing.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int
    choice: int
    position: int
    num_logprobs: int | None
