"""One bar while a model is fetched, converted or asked; knows how to draw, not what is drawn.

It shows from the first report on, only where a person watches: in a notebook, or where stderr is a
terminal. It is gone when its block ends, and never writes to stdout outside a notebook.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dashinfer_lab.config import Language, default_language
from dashinfer_lab.errors import ConfigError

if TYPE_CHECKING:
    from dashinfer_lab.convert import ConversionProgress

__all__ = ["LoadProgress", "conversion_pace", "counted", "load_bars", "progress_from"]

T = TypeVar("T")

_CONVERTING: Final = {"en": "converting", "zh": "转换"}
_DONE: Final = {"en": "{done} of {total} parameters", "zh": "{done} / {total} 参数"}
_PACE: Final = {"en": " · {rate}/s · {left} left", "zh": " · 每秒 {rate} · 剩余 {left}"}


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Whom to tell how far a fetch and a conversion are; nobody where None.

    fetch: called with what is being done, bytes done and bytes in all (0 where unknown).
    """

    fetch: Callable[[str, int, int], None] | None = None
    convert: Callable[[ConversionProgress], None] | None = None


@contextmanager
def load_bars(language: Language | None = None) -> Generator[LoadProgress, None, None]:
    """Yield what fetches and conversions report to; by default in the locale's language."""
    bar = _Bar(language or default_language())
    try:
        yield LoadProgress(bar.fetch, bar.convert)
    finally:
        bar.close()


def counted(items: Sequence[T], unit: str) -> Generator[T, None, None]:
    """Yield `items` under a bar that counts them, where a person watches."""
    if not _is_watched():
        yield from items
        return
    yield from _tqdm()(items, unit=f" {unit}", leave=False, file=sys.stderr)


def conversion_pace(progress: ConversionProgress, language: Language) -> str:
    """Say how much is done, how fast it goes and how long the rest will take."""
    from tqdm import tqdm

    size, seconds = tqdm.format_sizeof, progress.remaining_seconds
    said = _DONE[language].format(done=size(progress.done), total=size(progress.total))
    if progress.parameters_per_second is None or seconds is None:
        return said
    rate, left = size(progress.parameters_per_second), tqdm.format_interval(ceil(seconds))
    return said + _PACE[language].format(rate=rate, left=left)


class _Bar:
    """What is done now; the bar of what was done before is taken away."""

    def __init__(self, language: Language) -> None:
        self._language: Language = language
        self._work: dict[str, object] = {}
        self._drawn: Any = None

    def fetch(self, what: str, done: int, total: int) -> None:
        """Draw bytes."""
        self._draw(done, desc=what, total=total, unit="B", unit_divisor=1024)

    def convert(self, progress: ConversionProgress) -> None:
        """Draw parameters, and the time left."""
        pace = conversion_pace(progress, self._language)
        bar_format = "{desc} {percentage:3.0f}% |{bar}| " + pace
        work = _CONVERTING[self._language]
        self._draw(progress.done, bar_format, desc=work, total=progress.total)

    def close(self) -> None:
        """Take the bar away."""
        if self._drawn is not None:
            self._drawn.close()
        self._drawn = None

    def _draw(self, done: int, bar_format: str | None = None, **work: Any) -> None:
        if not _is_watched():
            return
        if self._drawn is None or self._work != work:
            self.close()
            self._work, look = work, {"unit_scale": True, "leave": False, "file": sys.stderr}
            self._drawn = _tqdm()(initial=done, bar_format=bar_format, **look, **work)
        self._drawn.bar_format = bar_format
        self._drawn.update(done - self._drawn.n)


def progress_from(given: object) -> AbstractContextManager[LoadProgress]:
    """What a caller means by `progress`: True are bars, False is nothing. Raises ConfigError."""
    if given is True:
        return load_bars()
    if given is False or isinstance(given, LoadProgress):
        return nullcontext(given or LoadProgress())
    raise ConfigError(f"progress={given!r:.80} is not possible: give True, False or a LoadProgress")


def _is_watched() -> bool:
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _tqdm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a bar of text
        from tqdm.auto import tqdm
    return tqdm


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    # The name is absent where IPython is not loaded, and while another thread imports it.
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    current = ask() if ask is not None else None
    return current is not None and "IPKernelApp" in current.config
