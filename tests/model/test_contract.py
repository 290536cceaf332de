"""The numerics contract, the whole of it: families, formats, and every two ways to be computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, groupby
from pathlib import Path

import pytest

from dashinfer_lab.convert import Artifact
from jit_kernels.kv_layout import KV_FORMATS
from tests.model.contract_ways import (
    EVERY_LEVEL,
    Way,
    answer,
    every_two,
    every_way,
    opened,
    whole,
)
from tests.model.family_cases import CASES
from tests.model.test_bit_equality import same_bits
from tests.model.test_families import converted
from tests.model.tiny_artifact import tiny_artifact

FAMILIES = ("llama", "qwen2", "chatglm")
SCHEMES = ("fp32", "bf16", "a16w8", "a16w4", "a8w8")
WITHOUT_SCHEDULES = {**EVERY_LEVEL, "schedule": (0,)}


def differing(artifact: Artifact, kv_format: str, ways: Sequence[Way]) -> list[Way]:
    """The ways whose logits are not those of the prompt alone, whole, with one thread."""
    with opened(artifact, kv_format) as runner:
        expected = whole(runner)

    def place(way: Way) -> tuple[int, int]:
        return way.threads, way.schedule

    found: list[Way] = []
    for (threads, schedule), those in groupby(sorted(ways, key=place), place):
        with opened(artifact, kv_format, threads, schedule) as runner:
            for way in those:
                logits = answer(runner, way)
                if not same_bits(logits, expected[-len(logits) :]):
                    found.append(way)
    return found


def of_family(name: str, scheme: str, directory: Path) -> Artifact:
    if name == "llama":
        return tiny_artifact(directory / "tiny", scheme)
    case = next(case for case in CASES if case.name == name)
    return converted(case, directory, scheme)


@pytest.mark.parametrize(
    ("name", "scheme", "kv_format"), [("qwen2", "a16w8", "int8"), ("chatglm", "a16w4", "bf16")]
)
def test_every_two_ways_together_give_the_same_bits(
    tmp_path: Path, name: str, scheme: str, kv_format: str
) -> None:
    ways = every_two(WITHOUT_SCHEDULES)

    assert differing(of_family(name, scheme, tmp_path), kv_format, ways) == []


@pytest.mark.slow
@pytest.mark.timeout(600)  # kernels of six schedules are compiled
@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_and_format_gives_the_same_bits_by_any_schedule(
    tmp_path: Path, name: str, scheme: str, kv_format: str
) -> None:
    ways = every_two(EVERY_LEVEL)

    assert differing(of_family(name, scheme, tmp_path), kv_format, ways) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_all_ways_give_the_same_bits(tmp_path: Path, kv_format: str) -> None:
    ways = every_way(WITHOUT_SCHEDULES)

    assert len(ways) >= 384
    assert differing(of_family("llama", "a16w8", tmp_path), kv_format, ways) == []


@cache
def pairs_of(way: Way) -> frozenset[tuple[tuple[str, object], ...]]:
    values = [(name, getattr(way, name)) for name in EVERY_LEVEL]
    return frozenset(combinations(values, 2))


def test_ways_hold_every_two_values_and_are_few() -> None:
    ways = every_two(EVERY_LEVEL)
    every = frozenset().union(*map(pairs_of, every_way(EVERY_LEVEL)))

    assert frozenset().union(*map(pairs_of, ways)) == every
    assert len(ways) <= 40
    assert every_two(EVERY_LEVEL) == ways
