"""Where names go beside the points of a picture; knows no picture. Lengths are in points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["Box", "Spot", "places_of_names"]

_LETTER_WIDTH: Final = 4.9
_LINE_HEIGHT: Final = 9.5
_GAP: Final = 4.0


class Spot(NamedTuple):
    """A point's middle, its diameter, and what it is called; "" for one without a name."""

    x: float
    y: float
    size: float
    name: str

    @property
    def marker(self) -> Box:
        """What the point covers."""
        return Box(self.x - self.size / 2, self.y - self.size / 2, self.size, self.size)

    def named_at(self, place: tuple[float, float]) -> Box:
        """What its name covers there."""
        width = _LETTER_WIDTH * len(self.name)
        return Box(self.x + place[0], self.y + place[1], width, _LINE_HEIGHT)


class Box(NamedTuple):
    """A rectangle by its lower left corner."""

    left: float
    bottom: float
    width: float
    height: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.bottom < other.bottom + other.height
            and other.bottom < self.bottom + self.height
        )


def places_of_names(spots: Sequence[Spot]) -> list[tuple[float, float]]:
    """Each name's lower left corner, from its point: to the right, unless something is there.

    The largest points are named first; where all places are taken, a name stays on the right.
    """
    taken = [spot.marker for spot in spots]
    chosen: dict[int, tuple[float, float]] = {}
    for index in sorted(range(len(spots)), key=lambda index: -spots[index].size):
        spot = spots[index]
        places = list(_places(spot))
        free = (it for it in places if not any(spot.named_at(it).meets(box) for box in taken))
        chosen[index] = next(free, places[0])
        if spot.name:
            taken.append(spot.named_at(chosen[index]))
    return [chosen[index] for index in range(len(spots))]


def _places(spot: Spot) -> Iterator[tuple[float, float]]:
    """Right, left, above, below, and the corners between."""
    width, apart = _LETTER_WIDTH * len(spot.name), spot.size / 2 + _GAP
    right, left, middle = apart, -apart - width, -width / 2
    level, above, below = -_LINE_HEIGHT / 3, apart, -apart - _LINE_HEIGHT
    yield from ((right, level), (left, level), (middle, above), (middle, below))
    yield from ((right, above), (right, below), (left, above), (left, below))
