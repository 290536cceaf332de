"""Bars on stderr while a model is fetched or converted; knows how to draw, not what is drawn.

A bar shows at the first report that comes half a second after its block began, only where stderr
is a terminal, and is gone when the block ends.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dashinfer_lab.cli.messages import text

if TYPE_CHECKING:
    from tqdm import tqdm

    from dashinfer_lab.convert import ConversionProgress, Progress
    from dashinfer_lab.hub.embedded import Progress as FetchProgress

__all__ = ["conversion_bar", "fetch_bar"]


@contextmanager
def conversion_bar() -> Generator[Progress, None, None]:
    """Yield what `convert` reports its progress to."""
    with _bar(text("work.converting"), text("work.parameters"), 1000) as bar:

        def show(progress: ConversionProgress) -> None:
            bar.total = progress.total
            bar.update(progress.done - bar.n)

        yield show


@contextmanager
def fetch_bar() -> Generator[FetchProgress, None, None]:
    """Yield what `resolve` reports its progress to."""
    with _bar(text("work.fetching"), "B", 1024) as bar:

        def show(what: str, done: int, total: int) -> None:
            bar.set_description(what, refresh=False)
            bar.total = total
            bar.update(done - bar.n)

        yield show


def _bar(description: str, unit: str, divisor: int) -> tqdm[Any]:
    from tqdm import tqdm

    return tqdm(
        desc=description,
        unit=unit,
        unit_scale=True,
        unit_divisor=divisor,
        leave=False,
        delay=0.5,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
    )
