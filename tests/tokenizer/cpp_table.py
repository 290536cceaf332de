"""Brace initialisers of C++ as nested lists: texts, and words such as true; no other expression."""

from __future__ import annotations

import re
from typing import TypeAlias

Value: TypeAlias = "str | list[Value]"

_TOKEN = re.compile(
    r'\s+|//[^\n]*|/\*.*?\*/|(?:u8)?R"(\w*)\((.*?)\)\1"|(?:u8)?"((?:[^"\\]|\\.)*)"|([{},()])|(\w+)',
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def parse_table(source: str) -> list[Value]:
    """Parse `{...}`, with which `source` begins; what follows it is left."""
    stack: list[list[Value]] = []
    follows_text = False
    position = 0
    while True:
        found = _TOKEN.match(source, position)
        if found is None:
            raise ValueError(f"not understood: {source[position : position + 40]!r}")
        position = found.end()
        _, raw, text, mark, word = found.groups()
        if raw is not None or text is not None:
            piece = raw if raw is not None else _unescaped(text)
            last = stack[-1][-1] if follows_text else None
            if isinstance(last, str):  # neighbours are one text
                stack[-1][-1] = last + piece
            else:
                stack[-1].append(piece)
            follows_text = True
        elif mark == "{":
            stack.append([])
        elif mark == "}":
            done = stack.pop()
            if not stack:
                return done
            stack[-1].append(done)
        elif mark == ",":
            follows_text = False
        elif word in ("true", "false"):
            stack[-1].append(word)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
