"""Where words go: results to stdout, remarks and errors to stderr; knows no command."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress

from dashinfer_lab.cli.messages import error_text, language
from dashinfer_lab.cli.width import padded, width
from dashinfer_lab.config import Language
from dashinfer_lab.error_words import error_words
from dashinfer_lab.log_words import warnings_kept

__all__ = [
    "one_line",
    "print_error",
    "print_json",
    "print_rows",
    "printable",
    "remark",
    "warnings_after",
]


def print_json(result: Mapping[str, object]) -> None:
    """Write `result` as the one JSON object of stdout, escaped where letters are lacking."""
    written = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        written.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        written = json.dumps(result, indent=2, allow_nan=False)
    print(written)


def remark(text: str) -> None:
    """Tell the person at the terminal, on stderr; that nobody can hear it ends no work."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


@contextmanager
def warnings_after() -> Generator[None]:
    """Keep the log's warnings until a line that streams to stdout has ended; then say them."""
    with warnings_kept() as kept:
        try:
            yield
        finally:
            for words in kept:
                remark(words)


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Write names and values as two aligned columns."""
    listed = list(rows)
    widest = max((width(name) for name, _ in listed), default=0)
    for name, value in listed:
        print(f"{padded(name, widest)}  {printable(value)}")


def print_error(error: BaseException, *, as_json: bool = False) -> None:
    """Write `error` on stderr, and as the JSON object of stdout where asked.

    It is one line; in Chinese, one under a heading.
    """
    remark(error_text(error, one_line(error, language())))
    if as_json:
        with suppress(OSError):  # stdout may be what failed
            print_json({"error": {"type": type(error).__name__, "message": one_line(error)}})


def one_line(error: BaseException, spoken: Language = "en") -> str:
    """Message of `error` without line breaks; its class where it has none."""
    return printable(" ".join(error_words(error, spoken).split())) or type(error).__name__


def printable(text: str) -> str:
    """Escape what a terminal would obey instead of showing: names in files are not trusted."""
    return "".join(it if it.isprintable() else repr(it)[1:-1] for it in text)
