"""A bar on stderr while a model is converted; knows how to draw, not what is drawn."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dashinfer_lab.convert import ConversionProgress, Progress

__all__ = ["conversion_bar"]


@contextmanager
def conversion_bar() -> Generator[Progress, None, None]:
    """Draw a bar that begins with the first report and is gone when the block ends."""
    from tqdm import tqdm

    bar = tqdm(
        desc="converting",
        unit=" parameters",
        unit_scale=True,
        leave=False,
        delay=0.5,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
    )

    def show(progress: ConversionProgress) -> None:
        bar.total = progress.total
        bar.update(progress.done - bar.n)

    with bar:
        yield show
