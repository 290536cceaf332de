"""No schedule changes a bit: all that a tuner may choose, beside the default and the reference."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jit_kernels.compiler.jit import Compiler, compiler_for
from jit_kernels.errors import TraceError
from jit_kernels.isa import AVX2, BASELINE, NEON, Isa, detect, object_cache_directory, runnable
from jit_kernels.kernels.linear_schedule import Schedule, row_tiles, trials
from jit_kernels.kernels.linear_tiles import row_tile
from tests.kernels.linear_cases import Linear, random_linear, run

KINDS = ("f32", "bf16", "u8", "u4", "u8 i7", "u4 i8")
MOST_ROWS = 64
ISAS = {"avx2": AVX2, "host": detect()}


@lru_cache(maxsize=32)
def case_of(kind: str, rows: int) -> Linear:
    return random_linear(kind, rows, k=300, n=210, bias=True, residual=True, seed=rows)


@lru_cache(maxsize=32)
def expected_of(kind: str, rows: int) -> np.ndarray[Any, Any]:
    return case_of(kind, rows).expected()


def compiler(name: str) -> Compiler:
    if not runnable(ISAS[name]):
        pytest.skip(f"this machine does not run {name}")
    return compiler_for(ISAS[name], object_cache_directory())


def every_tried_value(isa: Isa, field: str) -> list[int]:
    return sorted({getattr(trial.schedule, field) for trial in trials(isa)})


def any_schedule(isa: Isa) -> st.SearchStrategy[Schedule]:
    """Whatever a tuner may put together from the values it tries."""
    values = (st.sampled_from(every_tried_value(isa, field.name)) for field in fields(Schedule))
    return st.builds(Schedule, *values)


@pytest.mark.parametrize(
    "number", [1, 3, *(pytest.param(it, marks=pytest.mark.slow) for it in (2, 4, 5))]
)
def test_a_trial_gives_the_reference_bits(number: int) -> None:
    isa = detect()
    schedule, tile = trials(isa)[number]
    for rows in (1, 3, 13, 40, 131):
        out = run(
            case_of("u4", rows), compiler("host"), num_workers=2, schedule=schedule.word, tile=tile
        )

        assert np.array_equal(out.view(np.int32), expected_of("u4", rows).view(np.int32))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_gives_every_row_the_bits_it_has_alone(kind: str, isa_name: str) -> None:
    compiled = compiler(isa_name)
    whole = expected_of(kind, MOST_ROWS)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(
        any_schedule(compiled.isa),
        st.sampled_from(row_tiles(compiled.isa)),
        st.lists(st.integers(0, MOST_ROWS - 1), min_size=1, max_size=MOST_ROWS),
        st.integers(1, 3),
    )
    def holds(schedule: Schedule, tile: int, mix: list[int], num_workers: int) -> None:
        case = case_of(kind, MOST_ROWS).take(mix)
        out = run(case, compiled, num_workers=num_workers, schedule=schedule.word, tile=tile)

        assert np.array_equal(out.view(np.int32), whole[mix].view(np.int32))

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_trial_gives_many_rows_the_reference_bits(kind: str, isa_name: str) -> None:
    compiled = compiler(isa_name)
    for schedule, tile in trials(compiled.isa):
        for rows in (65, 131, 523):
            case = case_of(kind, rows)
            out = run(case, compiled, num_workers=3, schedule=schedule.word, tile=tile)

            assert np.array_equal(out.view(np.int32), expected_of(kind, rows).view(np.int32))


@pytest.mark.parametrize("isa", [AVX2, BASELINE, NEON, detect()], ids=["avx2", "base", "neon", "0"])
def test_trials_begin_with_the_default_and_every_row_tile_is_tried(isa: Isa) -> None:
    first, *others = trials(isa)

    assert first == (Schedule.default(isa), row_tile(isa))
    assert {trial.row_tile for trial in trials(isa)} == set(row_tiles(isa))
    assert all(trial != first for trial in others)
    for field in fields(Schedule):
        assert len(every_tried_value(isa, field.name)) > 1, field.name


@pytest.mark.parametrize("isa", [AVX2, NEON], ids=["avx2", "neon"])
def test_a_schedule_is_spelled_in_a_word(isa: Isa) -> None:
    for trial in trials(isa):
        assert Schedule.of(isa, trial.schedule.word) == trial.schedule
    assert Schedule.of(isa, "default") == Schedule.default(isa)


@pytest.mark.parametrize(
    "word", ["", "fast", "1.2", "0.16.256.8.6144.256.255", "0.16.256.8.6144.256.-1", "0.16.256"]
)
def test_a_word_that_spells_no_schedule_is_refused(word: str) -> None:
    with pytest.raises(TraceError, match="schedule"):
        Schedule.of(AVX2, word)
