"""Log-probabilities of one place in a sequence; data only, natural logarithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Logprob", "TokenLogprobs"]


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of one token; rank 1 is the most likely."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The drawn token and the likeliest ones beside it: `top` holds (id, logprob), best first."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()

    def as_dict(self, token_text: Callable[[int], str] | None = None) -> dict[int, Logprob]:
        """Map id to `Logprob`, likeliest first; the drawn token is there whatever its rank."""

        def entry(token_id: int, logprob: float, rank: int) -> Logprob:
            return Logprob(logprob, rank, token_text(token_id) if token_text else None)

        found = {i: entry(i, logprob, rank) for rank, (i, logprob) in enumerate(self.top, start=1)}
        found.setdefault(self.token_id, entry(self.token_id, self.logprob, self.rank))
        return found
