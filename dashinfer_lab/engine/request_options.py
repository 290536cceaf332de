"""What a caller may ask of the engine beside sampling: order, time, and whom to share with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dashinfer_lab.sampling.checks import check_integer, check_number, refuse

__all__ = ["SECONDS_A_PRIORITY", "RequestOptions"]

SECONDS_A_PRIORITY: Final = 10.0
"""A request of priority p is served as if it had come p times so much later."""

_MAX_PRIORITY: Final = 10**6
_MAX_SECONDS: Final = 1e9


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How one request is served; a bad value raises `RequestError`.

    priority: as in vLLM, lower is earlier. A level is worth ten seconds of waiting.
    timeout_seconds: from arrival; then the request ends with `DeadlineError` and what it has.
    cache_salt: pages are shared among requests of the same salt only.
    """

    priority: int = 0
    timeout_seconds: float | None = None
    cache_salt: str | None = None

    def __post_init__(self) -> None:
        check_integer("priority", self.priority, low=-_MAX_PRIORITY, high=_MAX_PRIORITY)
        if self.timeout_seconds is not None:
            check_number("timeout_seconds", self.timeout_seconds, 0, _MAX_SECONDS, above=True)
        _check_salt(self.cache_salt)


def _check_salt(salt: object) -> None:
    if salt is not None and not (isinstance(salt, str) and salt):
        refuse("cache_salt", salt, "a text that is not empty, or None")
