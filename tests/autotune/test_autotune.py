"""Choosing and keeping: noise changes nothing, and a store gives back only what was put into it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from jit_kernels.autotune import Choice, ChoiceStore, gain, in_turns, machine_parts, winner
from jit_kernels.isa import AVX2, AVX512
from jit_kernels.kernels.linear_schedule import Schedule
from jit_kernels.kernels.linear_tiles import row_tile

PARTS = ("this processor", "2 threads", "30 linear_u8 576x96")
CHOICE = Choice(
    row_tile(AVX2),
    {"linear_u8 i16 64 f16": replace(Schedule.default(AVX2), few_ahead=1024).word},
    {"linear_u8 i16 64 f16, 1 rows": 1.11},
)


def times(*columns: float, rounds: int = 20, noise: float = 0.0) -> np.ndarray:
    random = np.random.default_rng(7)
    return np.array([columns] * rounds) * (1 + noise * random.random((rounds, len(columns))))


def test_the_quickest_wins_by_its_median() -> None:
    measured = times(1.0, 0.9, 0.8)
    measured[3, 2] = 50.0  # a pause of the machine

    assert winner(measured) == 2
    assert gain(measured, 2) == pytest.approx(1 / 0.8)


@pytest.mark.parametrize("columns", [(1.0, 1.0, 1.0), (1.0, 0.97, 1.2), (1.0, 1.4)])
def test_the_default_stays_unless_another_wins_clearly(columns: tuple[float, ...]) -> None:
    assert winner(times(*columns, noise=0.02)) == 0


def test_who_wins_only_every_other_round_does_not_win() -> None:
    measured = times(1.0, 1.0)
    measured[:11, 1] = 0.5
    measured[11:, 1] = 1.5

    assert winner(measured) == 0


def test_candidates_take_turns_and_each_round_begins_with_another() -> None:
    ran: list[int] = []
    clock = map(float, count())

    def candidate(which: int) -> Callable[[], dict[str, float]]:
        def measure() -> dict[str, float]:
            ran.append(which)
            return {"work": which + 1.0}

        return measure

    found = in_turns([candidate(0), candidate(1), candidate(2)], 1.0, lambda: next(clock))

    assert ran[:9] == [0, 1, 2, 0, 1, 2, 1, 2, 0]
    assert found["work"].tolist() == [[1.0, 2.0, 3.0]] * 5


def test_rounds_end_with_the_time() -> None:
    clock = map(float, count())

    found = in_turns([lambda: {"work": 1.0}], 12.0, lambda: next(clock))

    assert len(found["work"]) == 16  # five before the clock is asked


def test_a_choice_is_read_back(tmp_path: Path) -> None:
    store = ChoiceStore(tmp_path / "schedules")

    assert store.read(PARTS, AVX2) is None
    assert store.write(PARTS, CHOICE)

    assert store.read(PARTS, AVX2) == CHOICE
    assert len(store) == 1
    assert len(list((tmp_path / "schedules").iterdir())) == 1


def test_other_work_or_another_machine_finds_nothing(tmp_path: Path) -> None:
    store = ChoiceStore(tmp_path)
    store.write(PARTS, CHOICE)

    assert store.read((*PARTS, "more"), AVX2) is None
    assert store.read(("another processor", *PARTS[1:]), AVX2) is None


def test_a_foreign_file_in_its_place_is_not_believed(tmp_path: Path) -> None:
    store = ChoiceStore(tmp_path)
    store.write(PARTS, CHOICE)
    store.write(("other",), CHOICE)
    mine, other = sorted(tmp_path.iterdir(), key=lambda it: "other" in it.read_text())
    mine.write_bytes(other.read_bytes())

    assert store.read(PARTS, AVX2) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole.replace(b"1.11", b"1.12"),
        lambda whole: b"\xff" + whole,
        lambda whole: bytes(len(whole)),
    ],
    ids=["empty", "cut", "altered", "no text", "zeros"],
)
def test_a_damaged_entry_is_not_found_and_can_be_written_again(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    store = ChoiceStore(tmp_path)
    store.write(PARTS, CHOICE)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))

    assert store.read(PARTS, AVX2) is None
    assert store.write(PARTS, CHOICE)
    assert store.read(PARTS, AVX2) == CHOICE


@pytest.mark.parametrize(
    "impossible",
    [
        replace(CHOICE, row_tile=7),
        replace(CHOICE, row_tile=-6),
        replace(CHOICE, schedules={"linear_u8 i16 64 f16": "1.1.1.1.1.1.1"}),
        replace(CHOICE, schedules={"linear_u8 i16 64 f16": "rm -rf"}),
    ],
    ids=["strips", "negative strips", "schedule", "word"],
)
def test_what_no_kernel_can_be_is_not_believed(tmp_path: Path, impossible: Choice) -> None:
    store = ChoiceStore(tmp_path)
    store.write(PARTS, impossible)

    assert store.read(PARTS, AVX2) is None


def test_a_directory_that_cannot_be_written_is_told_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    store = ChoiceStore(tmp_path / "file" / "schedules")

    assert not store.write(PARTS, CHOICE)
    assert store.read(PARTS, AVX2) is None
    assert len(store) == 0


def test_a_choice_belongs_to_instructions_threads_and_sources() -> None:
    parts = machine_parts(AVX2, 2)

    assert parts != machine_parts(AVX2, 1)
    assert parts != machine_parts(AVX512, 2)
    assert parts == machine_parts(AVX2, 2)
    assert all(part for part in parts)
    assert os.sep not in parts[-1]  # a digest, no path
