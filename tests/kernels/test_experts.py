"""Experts' products and their sum: a row has the bits that `linear` gives it, in any company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jit_kernels import panels as packing
from jit_kernels.activation_layout import UNTILED
from jit_kernels.isa import Isa
from jit_kernels.kernels import expert_linear
from jit_kernels.kernels.combine_experts import combine_experts
from jit_kernels.kernels.linear_operands import WORKSPACE_BYTES
from jit_kernels.kernels.prepare import prepare as prepare_kernel
from jit_kernels.reference import experts as reference
from jit_kernels.reference.prepare import prepare
from tests.kernels.guarded import guarded, guarded_before
from tests.kernels.linear_cases import Linear, Place, random_linear
from tests.kernels.machine_code import compiled, each_isa, run, same_bits

KINDS = ("f32", "bf16", "u8", "u4", "u8 i7", "u4 i8")
NUM_EXPERTS = 6

each_kind = pytest.mark.parametrize("kind", KINDS)
each_kind_in_time = pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] if " " in k else []) for k in KINDS]
)


def experts_of(kind: str, k: int, n: int, rows: int = 1) -> list[Linear]:
    """One random weight an expert, all with the same rows."""
    cases = [random_linear(kind, rows, k, n, seed=e) for e in range(NUM_EXPERTS)]
    return [
        Linear(
            c.kind, cases[0].x, c.weight, c.scale, c.minimum, c.group, c.weight_group, form=c.form
        )
        for c in cases
    ]


def multiplied(
    isa: Isa,
    experts: list[Linear],
    groups: reference.Groups,
    *,
    gather: bool = True,
    num_workers: int = 1,
    place: Place = lambda array: array,
) -> np.ndarray:
    """Every worker's part in turn: [pairs, N]."""
    one = experts[0]
    constants: dict[str, Any] = {"gather": gather}
    form = one.form if one.grouped else "f32"
    ready = prepare(one.x, form, one.group, UNTILED)
    out = place(np.full((len(groups.token_rows), one.num_panels * 16), np.nan, np.float32))
    counts = np.array([len(groups.token_rows), len(groups.experts)])
    operands: list[Any] = [place(counts), place(groups.experts), place(groups.token_rows)]
    operands += [place(ready.words), *([place(ready.scales)] if one.grouped else [])]
    operands.append(place(np.concatenate([each.packed() for each in experts])))
    if one.grouped:
        constants |= {"form": form, "group": one.group, "scale_format": "f16"}
        for part in ("scale", "minimum"):
            packed = [packing.pack_groups(getattr(each, part)) for each in experts]
            operands.append(place(np.concatenate(packed)))
    operands += [out, out.shape[1], one.k, one.num_panels]
    operands += [one.groups_per_scale] if one.grouped else []
    workspace = np.zeros(num_workers * WORKSPACE_BYTES, np.uint8)
    operands += [np.zeros(1, np.int64), workspace, WORKSPACE_BYTES]
    code = compiled(getattr(expert_linear, f"expert_linear_{one.kind}"), isa, **constants)
    run(code, operands, num_workers)
    return out[:, : one.n]


def expected(experts: list[Linear], groups: reference.Groups, *, gather: bool = True) -> np.ndarray:
    """What `linear` computes for each sorted pair."""
    out = np.empty((len(groups.token_rows), experts[0].n), np.float32)
    for expert, first, count in groups.experts.tolist():
        slots = np.arange(first, first + count)
        rows = groups.token_rows[slots] if gather else slots
        out[slots] = experts[expert].take(rows.tolist()).expected()
    return out


def choices(num_rows: int, top_k: int) -> np.ndarray:
    """Expert 0 for every row, so that one expert has many; others at random, the last never."""
    random = np.random.default_rng(num_rows)
    rest = [1 + random.permutation(NUM_EXPERTS - 2)[: top_k - 1] for _ in range(num_rows)]
    return np.array([[0, *others] for others in rest], np.int32)


@each_isa
@each_kind
@pytest.mark.parametrize("num_rows", [1, 2, 6, 21])
def test_every_pair_has_the_bits_of_linear(isa: Isa, kind: str, num_rows: int) -> None:
    experts = experts_of(kind, k=133, n=50, rows=num_rows)
    groups = reference.group_rows(choices(num_rows, 3))

    for place in (guarded, guarded_before):
        actual = multiplied(isa, experts, groups, num_workers=3, place=place)

        same_bits(np.ascontiguousarray(actual), expected(experts, groups))


@each_isa
@each_kind_in_time
@pytest.mark.parametrize(("k", "n"), [(1, 1), (17, 16), (515, 33)])
def test_every_size_has_the_bits_of_linear(isa: Isa, kind: str, k: int, n: int) -> None:
    groups = reference.group_rows(choices(5, 2))
    experts = experts_of(kind, k, n, rows=len(groups.token_rows))

    actual = multiplied(isa, experts, groups, gather=False, place=guarded)

    same_bits(np.ascontiguousarray(actual), expected(experts, groups, gather=False))


@each_isa
@each_kind_in_time
def test_a_row_that_is_not_finite_harms_no_other(isa: Isa, kind: str) -> None:
    experts = experts_of(kind, k=70, n=20, rows=9)
    groups = reference.group_rows(choices(9, 2))
    clean = expected(experts, groups)
    experts[0].x[4, 69] = np.nan  # the same array for all

    actual = np.ascontiguousarray(multiplied(isa, experts, groups))

    broken = groups.token_rows == 4
    assert np.isnan(actual[broken]).all()
    same_bits(actual[~broken], clean[~broken])


@each_isa
def test_experts_that_no_row_chose_are_not_read(isa: Isa) -> None:
    groups = reference.group_rows(choices(4, 3))
    experts = experts_of("f32", k=20, n=17, rows=4)
    absent = NUM_EXPERTS - 1
    assert absent not in groups.experts[:, 0]

    actual = multiplied(isa, experts[:absent], groups, place=guarded)  # it is not even there

    same_bits(np.ascontiguousarray(actual), expected(experts, groups))


@each_isa
@pytest.mark.parametrize("form", ["f32", "i16", "i8"])
@pytest.mark.parametrize("num_rows", [1, 3, 70])
def test_untiled_rows_lie_one_after_the_other(isa: Isa, form: str, num_rows: int) -> None:
    x = np.random.default_rng(1).standard_normal((num_rows, 83)).astype(np.float32)
    ready = prepare(x, form, 64, UNTILED)
    words = guarded(np.full_like(ready.words, -1))
    scales = guarded(np.full((num_rows, 2, 2), -1, np.float32))

    code = compiled(prepare_kernel, isa, form=form, group=64, row_tile=UNTILED)
    operands = (guarded(np.array([num_rows])), guarded(x), 83, 83, words, scales, 0, 0)
    run(code, operands, num_workers=3)

    assert ready.words.shape[0] == num_rows
    same_bits(words, ready.words)
    if form != "f32":
        same_bits(scales, ready.scales)


@each_isa
@pytest.mark.parametrize("has_shared", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize(("num_rows", "width"), [(1, 16), (1, 400), (7, 144)])
def test_the_sum_goes_by_rank(
    isa: Isa, has_shared: bool, has_residual: bool, num_rows: int, width: int
) -> None:
    random = np.random.default_rng(width)
    top_k = 3
    outputs = random.standard_normal((num_rows * top_k, width)).astype(np.float32)
    slots = random.permutation(num_rows * top_k).astype(np.int32).reshape(num_rows, top_k)
    weights = random.random((num_rows, top_k)).astype(np.float32)
    shared, residual = random.standard_normal((2, num_rows, width)).astype(np.float32)
    gate = random.standard_normal((num_rows, 16)).astype(np.float32)
    out = guarded(residual)

    operands = [guarded(np.array([num_rows])), guarded(outputs), width, guarded(slots)]
    operands += [guarded(weights), top_k, guarded(shared), width, guarded(gate[:, :1]), 1]
    operands += [out, width, out, width, width // 16]
    code = compiled(combine_experts, isa, has_shared=has_shared, has_residual=has_residual)
    run(code, operands, num_workers=3)

    both = (shared, gate[:, 0]) if has_shared else None
    wanted = reference.combine_experts(
        outputs, slots, weights, both, residual if has_residual else None
    )
    same_bits(out, wanted)
