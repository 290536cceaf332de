"""The linear kernels against their NumPy body, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jit_kernels.compiler.jit import Compiler, compiler_for
from jit_kernels.errors import TraceError
from jit_kernels.isa import BASELINE, detect, object_cache_directory, record, runnable
from jit_kernels.kernels.linear_tiles import row_tile
from jit_kernels.reference.geglu import geglu_bits
from jit_kernels.reference.prepare import Prepared, prepare
from jit_kernels.reference.swiglu import swiglu_bits
from tests.kernels.guarded import guarded, guarded_before
from tests.kernels.linear_cases import GEMV_ROWS, Linear, random_linear, run

KINDS = ("f32", "bf16", "u8", "u4")
GROUPED = ("u8", "u4", "u8 i7", "u4 i8")
EVERY_FORM = ("f32", "bf16", *GROUPED)
ROWS = (1, 2, 3, 4, 5, 8, 9, 14, 16, 17, 64, 65)


def _slow(*values: Any) -> list[Any]:
    """Parameters that `make test` leaves to `make test-slow`."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def same_bits(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bits, where any NaN equals any other."""
    nan = np.isnan(expected)
    return bool(
        np.array_equal(np.isnan(actual), nan)
        and np.array_equal(
            np.ascontiguousarray(actual).view(np.int32)[~nan], expected.view(np.int32)[~nan]
        )
    )


def compiler(name: str) -> Compiler:
    isa = detect() if name == "host" else record(name)
    if not runnable(isa):
        pytest.skip(f"this machine does not run {name}")
    return compiler_for(isa, object_cache_directory())


@pytest.fixture(params=["avx2", "host"])
def compiled(request: pytest.FixtureRequest) -> Compiler:
    return compiler(request.param)


@pytest.mark.parametrize("kind", EVERY_FORM)
@pytest.mark.parametrize("rows", ROWS)
def test_every_number_of_rows_gives_the_reference_bits(
    compiled: Compiler, kind: str, rows: int
) -> None:
    case = random_linear(kind, rows, k=133, n=50, bias=True, residual=True, seed=rows)

    assert same_bits(run(case, compiled), case.expected())


@pytest.mark.parametrize("kind", [*KINDS, *_slow("u8 i7", "u4 i8")])
@pytest.mark.parametrize("k", [1, 3, 16, 17, 257, *_slow(2, 5, 15, 255, 515, 1030)])
def test_every_depth_gives_the_reference_bits(compiled: Compiler, kind: str, k: int) -> None:
    for rows in (1, 6, 14):
        case = random_linear(kind, rows, k=k, n=17, bias=True, residual=True, seed=k)

        assert same_bits(run(case, compiled), case.expected())


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("rows", [1, 4, 9, 70])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_do_not_overflow(
    compiled: Compiler, kind: str, rows: int, sign: int
) -> None:
    case = random_linear(kind, rows, k=300, n=17, weight_group=256)
    full = replace(
        case,
        x=np.full_like(case.x, sign),
        weight=np.full_like(case.weight, 15 if kind.startswith("u4") else 255),
    )

    assert same_bits(run(full, compiled), full.expected())


@pytest.mark.slow
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("weight_group", [32, 64, 128, 256, 512, "row"])
def test_a_last_group_of_any_length_gives_the_reference_bits(
    compiled: Compiler, kind: str, weight_group: int | str
) -> None:
    for k in (*range(256, 290), 511, 513, 767, 769, 1025, 1026, 1030):
        for rows in (1, 9, 70):
            case = random_linear(kind, rows, k=k, n=17, weight_group=weight_group, seed=k)

            assert same_bits(run(case, compiled), case.expected())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", EVERY_FORM)
def test_any_number_of_rows_to_2048_gives_the_bits_of_the_whole(
    compiled: Compiler, kind: str
) -> None:
    whole = random_linear(kind, 2048, k=70, n=20, bias=True, residual=True)
    expected = whole.expected()
    # Beyond 130, steps of 13 meet every rest of strips of 2 to 8 rows, and every number of blocks.
    for rows in (*range(1, 131), *range(131, 2048, 13), 2047, 2048):
        actual = run(whole.take(slice(0, rows)), compiled, num_workers=1 + rows % 3)

        assert same_bits(actual, expected[:rows])


@pytest.mark.parametrize("scale_dtype", [np.float16, np.float32])
@pytest.mark.parametrize("kind", ["u8", "u4", *_slow("u8 i7", "u4 i8")])
@pytest.mark.parametrize("weight_group", [32, 64, 128, 256, 512, "row"])
def test_every_group_size_gives_the_reference_bits(
    compiled: Compiler, kind: str, weight_group: int | str, scale_dtype: type
) -> None:
    for rows in (2, 8, 15, 70):
        case = random_linear(
            kind, rows, k=1204, n=33, weight_group=weight_group, scale_dtype=scale_dtype,
            bias=True, residual=True,
        )  # fmt: skip

        assert same_bits(run(case, compiled), case.expected())


@pytest.mark.parametrize("kind", [*KINDS, *_slow("u8 i7", "u4 i8")])
def test_a_row_has_the_same_bits_in_any_company(compiled: Compiler, kind: str) -> None:
    many = random_linear(kind, rows=523, k=584, n=96, seed=3)
    together = run(many, compiled, num_workers=3)
    first = 255
    for rows in (1, 2, 3, 4, 5, 8, 9, 12, 13, 100, 257):
        alone = run(many.take(slice(first, first + rows)), compiled, num_workers=2)

        assert same_bits(alone, together[first : first + rows])


@pytest.mark.parametrize("kind", EVERY_FORM)
def test_the_baseline_gives_the_same_bits(kind: str) -> None:
    for rows in (3, 11):
        case = random_linear(kind, rows, k=70, n=20, bias=True, residual=True)

        assert same_bits(run(case, compiler(BASELINE.name)), case.expected())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_the_residual_may_be_the_output(compiled: Compiler, kind: str, rows: int) -> None:
    case = random_linear(kind, rows, k=600, n=48, bias=True, residual=True)

    assert same_bits(run(case, compiled, in_place=True), case.expected())


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_write_nothing(compiled: Compiler, kind: str) -> None:
    case = random_linear(kind, rows=3, k=64, n=16)

    assert np.isnan(run(case, compiled, live_rows=0)).all()


@pytest.mark.parametrize("unit", ["swiglu", *_slow("geglu")])
@pytest.mark.parametrize("kind", ["f32", "u8", *_slow("bf16", "u4", "u8 i7", "u4 i8")])
@pytest.mark.parametrize("rows", [3, 64, 65, 300])
def test_a_gated_product_of_many_rows_is_the_unit_of_its_halves(
    compiled: Compiler, kind: str, rows: int, unit: str
) -> None:
    case = random_linear(kind, rows, 300, 96, bias=True)
    halves = run(case, compiled)
    gated = run(replace(case, gated=unit), compiled, num_workers=3)

    if rows <= GEMV_ROWS:
        assert same_bits(gated, halves)
    else:
        expected = {"swiglu": swiglu_bits, "geglu": geglu_bits}[unit](
            halves[:, :48], halves[:, 48:]
        )
        assert same_bits(gated[:, :48], expected)
        assert np.isnan(gated[:, 48:]).all()  # as they were


@pytest.mark.parametrize("unit", ["swiglu", *_slow("geglu")])
@pytest.mark.parametrize(
    ("kind", "form", "group"),
    [
        ("u8", "i16", 64),
        ("u4", "i16", 32),
        pytest.param("u8 i7", "i7", 64, marks=pytest.mark.slow),
        pytest.param("u4 i8", "i8", 16, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("rows", [64, 65, 300])
def test_a_gated_product_prepares_its_units_for_the_next(
    compiled: Compiler, kind: str, form: str, group: int, rows: int, unit: str
) -> None:
    """Two row blocks of which no strip is full; three groups, dealt to three workers."""
    case = random_linear(kind, rows, 300, 6 * group, bias=True)
    if rows <= GEMV_ROWS:
        out, units = run_preparing(case, compiled, unit, form, group)
        assert same_bits(out, run(case, compiled))
        assert all((part == 7).all() for part in units)  # as they were
    else:
        assert prepares_its_units(case, compiled, unit, form, group)


def run_preparing(
    case: Linear, compiled: Compiler, unit: str, form: str, group: int, **how: Any
) -> tuple[np.ndarray, Prepared]:
    """What a product of gates and ups writes, and the rows that it prepares; they were sevens."""
    tile = how.get("tile", row_tile(compiled.isa))
    like = prepare(np.zeros((case.rows, case.n // 2), np.float32), form, group, tile)
    units = Prepared(*(guarded(np.full_like(part, 7)) for part in like))
    gated = replace(case, gated=unit, unit_form=form, unit_group=group)
    return run(gated, compiled, num_workers=3, units=units, **how), units


def prepares_its_units(
    case: Linear, compiled: Compiler, unit: str, form: str, group: int, **how: Any
) -> bool:
    """Whether the rows are those of the units of what it would write, which it leaves alone."""
    n, tile = case.n // 2, how.get("tile", row_tile(compiled.isa))
    halves = run(case, compiled)
    bits = {"swiglu": swiglu_bits, "geglu": geglu_bits}[unit](halves[:, :n], halves[:, n:])
    expected = prepare(bits, form, group, tile)
    out, units = run_preparing(case, compiled, unit, form, group, **how)
    return bool(np.isnan(out).all()) and all(map(same_bits, units, expected))


@pytest.mark.parametrize("tile", [2, 3, 8])
@pytest.mark.parametrize("schedule", ["default", "0.4.32.4.0.128.128"])
def test_units_have_the_same_bits_by_every_tile_and_schedule(tile: int, schedule: str) -> None:
    case = random_linear("u8", 299, 600, 256, bias=True)
    how = {"tile": tile, "schedule": schedule}

    assert prepares_its_units(case, compiler("host"), "swiglu", "i16", 64, **how)


def test_a_row_of_units_that_is_not_finite_harms_no_other(compiled: Compiler) -> None:
    case = random_linear("u8", 70, 300, 256)
    case.x[30, 77] = np.inf

    assert prepares_its_units(case, compiled, "swiglu", "i16", 64)


@pytest.mark.parametrize("group", [0, 24, 128])
def test_units_are_prepared_in_groups_of_a_few_whole_panels(compiled: Compiler, group: int) -> None:
    case = random_linear("u8", 65, 64, 256)

    with pytest.raises(TraceError, match=f"at most 64 columns wide, not {group}"):
        run(replace(case, gated="swiglu", unit_form="i16", unit_group=group), compiled)


@pytest.mark.parametrize("kind", [*KINDS, *_slow("u8 i7", "u4 i8")])
@pytest.mark.parametrize("rows", [1, 3, 9, 64, 67])
def test_a_row_that_is_not_finite_harms_no_other(compiled: Compiler, kind: str, rows: int) -> None:
    clean = random_linear(kind, rows, k=133, n=40)
    bad = rows // 2
    x = clean.x.copy()
    x[bad, 77] = np.nan
    broken = replace(clean, x=x)
    out, others = run(broken, compiled), np.arange(rows) != bad

    assert np.isnan(out[bad]).all()
    assert same_bits(out[others], clean.expected()[others])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 4, 6, 17])
def test_operands_are_read_to_their_last_byte_and_no_further(
    compiled: Compiler, kind: str, rows: int
) -> None:
    case = random_linear(kind, rows, k=317, n=48, bias=True, residual=True)

    for place in (guarded, guarded_before):
        assert same_bits(run(case, compiled, place=place), case.expected())
