"""Every unit is claimed once, and each worker's own before another's."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.dsl import Array, Value
from jit_kernels.isa import AVX2
from jit_kernels.kernel import CompiledKernel, kernel, worker
from jit_kernels.kernels.claims import COUNTER_WORDS, claimed_near
from jit_kernels.types import I64
from tests.kernels.machine_code import compiled


@kernel
def claim_all(
    counter: Array[I64], total: Value[I64], owners: Array[I64], order: Array[I64]
) -> None:
    """owners[unit] becomes 1 + the worker, if nobody had it; order is what was claimed, in order.

    `order[0]` counts.
    """
    for unit in claimed_near(counter, total):
        owners[unit] = owners[unit] * 1000 + worker().index + 1
        order[0] = order[0] + 1
        order[order[0]] = unit


def claims(
    code: CompiledKernel, total: int, workers: list[int], num_workers: int
) -> tuple[np.ndarray, list[list[int]]]:
    """Who has each unit, and what each of `workers`, one after the other, claimed, in order."""
    counter, owners = np.zeros(COUNTER_WORDS, np.int64), np.zeros(total, np.int64)
    orders = []
    for each in workers:
        order = np.zeros(total + 1, np.int64)
        code(counter, total, owners, order, worker=each, num_workers=num_workers)
        orders.append(order[1 : 1 + order[0]].tolist())
    return owners, orders


@pytest.mark.parametrize("num_workers", [1, 2, 3, 8, 9, 96])
@pytest.mark.parametrize("total", [0, 1, 7, 100])
def test_each_unit_is_claimed_once_and_a_lone_worker_claims_all(
    num_workers: int, total: int
) -> None:
    code = compiled(claim_all, AVX2)
    for first in (0, num_workers - 1):
        owners, (order, *others) = claims(code, total, [first, 0, num_workers - 1], num_workers)
        assert owners.tolist() == [first + 1] * total
        assert sorted(order) == list(range(total))
        assert others == [[], []]


@pytest.mark.parametrize(
    ("worker", "num_workers", "part"),
    [(0, 2, (0, 50)), (1, 2, (50, 100)), (2, 3, (66, 100)), (7, 8, (87, 100)), (95, 96, (87, 100))],
)
def test_a_worker_begins_with_its_own_part(
    worker: int, num_workers: int, part: tuple[int, int]
) -> None:
    _, (order,) = claims(compiled(claim_all, AVX2), 100, [worker], num_workers)
    own = list(range(*part))
    assert order[: len(own)] == own
