"""Advance in plain NumPy: what a walk notes, whether it is the last, and the next one's inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["Decoding", "advance"]

Ints = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Decoding:
    """One token of each of R rows; pages[r] lists row r's pages of `page_size` tokens."""

    token_ids: Ints
    positions: Ints
    slots: Ints
    draw_positions: Ints
    item_positions: Ints
    pages: list[list[int]]
    page_size: int = 32


def advance(
    before: Decoding, drawn: Ints, finite: Ints, stop_ids: list[list[int]], *, hurried: bool = False
) -> Decoding:
    """The next inputs; `before` itself where a row stopped or is not finite, or others wait."""
    stopped = any(token in ids for token, ids in zip(drawn.tolist(), stop_ids, strict=True))
    if stopped or hurried or not finite.all():
        return before
    positions = before.positions + 1
    size = before.page_size
    slots = [
        own[position // size] * size + position % size
        for own, position in zip(before.pages, positions.tolist(), strict=True)
    ]
    return replace(
        before,
        token_ids=drawn,
        positions=positions,
        slots=np.array(slots),
        draw_positions=before.draw_positions + 1,
        item_positions=before.item_positions + 1,
    )
