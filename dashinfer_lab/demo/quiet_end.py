"""Keeps the server from telling of streams that it has to cut when the page ends."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["quiet_end"]


@contextmanager
def quiet_end() -> Generator[None]:
    """End the page in this block: an open tab holds a stream, whose end is no error."""
    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(_is_worth_telling)
    try:
        yield
    finally:
        logger.removeFilter(_is_worth_telling)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not (
        isinstance(error, CancelledError)
        or "timeout graceful shutdown exceeded" in record.getMessage()
    )
