"""What a program said, but for the line that other programs keep the processors busy."""

from __future__ import annotations

import re
from typing import Final

from dashinfer_lab.log_words import CHINESE

_LOGGER: Final = "jit_kernels.runtime.contention"

__all__ = ["without_busy_line"]


def without_busy_line(said: str) -> str:
    """The text without that line, in either language: whether it comes is up to the machine."""
    for words in CHINESE[_LOGGER].items():
        for word in words:
            said = re.sub(re.escape(word).replace("%d", r"\d+") + "\n?", "", said)
    return said
