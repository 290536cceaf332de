"""What stands under an answer: its length and speed, live and in the end, and why it ended."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashinfer_lab.engine import RequestHandle

__all__ = ["final_note", "live_note", "transcript_html"]

_REASONS: Final = {"cancelled": "chat.stopped", "length": "chat.length"}


class _Turn(Protocol):
    message: str
    answer: str
    note: str


def live_note(count: int, seconds: float, since_first: float, say: Callable[..., str]) -> str:
    """Tokens so far, and their rate since the first ones were seen."""
    rate = (count - 1) / since_first if since_first > 0 else count / max(seconds, 1e-9)
    return say("chat.live", count=count, rate=rate)


def final_note(handle: RequestHandle, say: Callable[..., str]) -> str:
    """The engine's own figures of a request that has ended."""
    output, metrics = handle.output, handle.metrics
    why = _REASONS.get(str(output.finish_reason))
    between = metrics.seconds_per_token if metrics else None
    rate = 1 / between if between else 0.0
    said = (say(why) if why else "") + say("chat.live", count=len(output.token_ids), rate=rate)
    if metrics is not None and metrics.ttft_seconds is not None:
        said += say("chat.ttft", seconds=metrics.ttft_seconds)
    return said


def transcript_html(turns: Sequence[_Turn], empty: str) -> str:
    """Text stands as the model wrote it: nothing in it is markup."""
    drawn = "".join(
        f'<div class="dl-turn dl-user">{escape(turn.message)}</div>'
        f'<div class="dl-turn dl-model">{escape(turn.answer)}'
        f'<span class="dl-under">{escape(turn.note)}</span></div>'
        for turn in turns
    )
    nothing = f'<div class="dl-quiet">{escape(empty)}</div>'
    return f'<div class="dl-turns">{drawn or nothing}</div>'
