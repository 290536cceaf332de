"""What functions of callers raise, told; knows no request.

Logits processors, decoders and subscribers run on the engine's thread. Whatever they raise, also
`SystemExit` or an exception that cannot be printed, must end no more than what they belong to.
"""

from __future__ import annotations

__all__ = ["described"]


def described(error: BaseException) -> str:
    """An exception in a message's words, at most 300 characters; its kind where its repr fails."""
    try:
        return f"{error!r:.300}"
    except Exception:  # noqa: BLE001  # a repr of a stranger's making
        return f"{type(error).__name__}, which cannot be printed"
