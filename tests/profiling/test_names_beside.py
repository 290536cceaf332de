from __future__ import annotations

from itertools import combinations

import pytest

from dashinfer_lab.profiling.names_beside import Spot, places_of_names

ALONE = Spot(100, 100, 10, "linear_u8")


def test_a_name_is_to_the_right_of_its_point() -> None:
    ((x, y),) = places_of_names([ALONE])

    assert x > ALONE.size / 2
    assert y < 0 < y + ALONE.named_at((x, y)).height


@pytest.mark.parametrize("apart", [0, 3, 11, 40])
def test_names_lie_on_no_point_and_on_no_other_name(apart: float) -> None:
    spots = [
        ALONE,
        Spot(100 + apart, 100, 5, "prepare"),
        Spot(100, 100 + apart, 6, ""),
        Spot(100 + apart, 100 + apart, 7, "attention_merge"),
    ]
    names = [
        spot.named_at(place)
        for spot, place in zip(spots, places_of_names(spots), strict=True)
        if spot.name
    ]

    assert not [pair for pair in combinations(names, 2) if pair[0].meets(pair[1])]
    assert not [it for it in names if any(it.meets(spot.marker) for spot in spots)]


def test_where_no_place_is_free_a_name_stays() -> None:
    crowd = [Spot(100 + dx, 100 + dy, 30, "") for dx in (-40, 0, 40) for dy in (-20, 0, 20)]

    assert places_of_names([ALONE, *crowd])[0] == places_of_names([ALONE])[0]
