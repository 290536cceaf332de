"""A few combinations of options that hold every two values of different options together."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["every_pair"]

Options = dict[str, Any]


def every_pair(levels: Mapping[str, Sequence[Any]]) -> list[Options]:
    """Combinations of one value for each name; the same ones each time."""
    names = list(levels)
    missing = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        for x, y in itertools.product(levels[a], levels[b])
    }
    found: list[Options] = []
    while missing:
        chosen: Options = dict(min(missing, key=repr))
        for name in (name for name in names if name not in chosen):
            news = [_num_in(missing, name, value, chosen) for value in levels[name]]
            chosen[name] = levels[name][news.index(max(news))]
        ordered = {name: chosen[name] for name in names}
        missing -= set(itertools.combinations(ordered.items(), 2))
        found.append(ordered)
    return found


def _num_in(missing: set[Any], name: str, value: Any, chosen: Options) -> int:
    """How many missing pairs a value makes with those chosen."""
    own = (name, value)
    return sum((own, other) in missing or (other, own) in missing for other in chosen.items())
