"""Speed of one request as the commands report it; knows no terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from dashinfer_lab.cli.messages import text
from dashinfer_lab.events import RequestMetrics

__all__ = ["Figures"]


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts in tokens, `ttft_s` seconds to the first, `decode_tok_s` tokens a second after it."""

    prompt_tokens: int
    completion_tokens: int
    ttft_s: float | None
    decode_tok_s: float | None

    @staticmethod
    def of(metrics: RequestMetrics | None) -> Figures:
        """Figures of a request that ended; what did not come to be is None."""
        if metrics is None:
            return Figures(0, 0, None, None)
        between = metrics.seconds_per_token
        return Figures(
            prompt_tokens=metrics.num_prompt_tokens,
            completion_tokens=metrics.num_output_tokens,
            ttft_s=metrics.ttft_seconds,
            decode_tok_s=1 / between if between else None,
        )

    def as_dict(self) -> dict[str, object]:
        """Names and values, for `--json`."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [text("figures.tokens", count=self.completion_tokens)]
        if self.decode_tok_s is not None:
            parts.append(text("figures.speed", rate=self.decode_tok_s))
        if self.ttft_s is not None:
            parts.append(text("figures.ttft", seconds=self.ttft_s))
        return " · ".join(parts)
