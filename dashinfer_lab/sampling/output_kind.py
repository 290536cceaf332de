"""What each output of a stream holds, by vLLM's names."""

from __future__ import annotations

import enum

from dashinfer_lab.sampling.checks import refuse

__all__ = ["RequestOutputKind", "check_kind"]


class RequestOutputKind(enum.Enum):
    """All so far, only what is new, or nothing before the end."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


def check_kind(name: str, value: object) -> None:
    """Refuse what is no `RequestOutputKind`."""
    if not isinstance(value, RequestOutputKind):
        refuse(name, value, f"a RequestOutputKind, as {RequestOutputKind.DELTA} is")
