"""Columns that a text takes in a terminal, where a Chinese character takes two."""

from __future__ import annotations

import re
from typing import Final
from unicodedata import east_asian_width

__all__ = ["padded", "width", "wrapped"]

_WORDS: Final = re.compile(r"[\u2e80-\uffef][，。；：、）]*|[^\s\u2e80-\uffef]+\s*|\s+")


def width(text: str) -> int:
    """Count the columns of `text`."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Fill `text` up to `columns` with spaces after it, or before it where it goes to the right."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def wrapped(text: str, columns: int) -> list[str]:
    """Break `text` into lines of so many columns: at spaces, and between Chinese characters."""
    lines, line = [], ""
    for word in _WORDS.findall(text):
        if line and width(line + word.rstrip()) > columns:
            lines.append(line.rstrip())
            line = ""
        line += word
    return [*lines, line.rstrip()] if line else lines
