"""How a kernel's parameters become words of its record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from jit_kernels.compiler import default_compiler
from jit_kernels.dsl import Array, Value
from jit_kernels.errors import ShapeError, TraceError
from jit_kernels.kernel import Kernel, kernel
from jit_kernels.types import F32, I64


class Line(NamedTuple):
    """a x + b."""

    slope: Value[F32]
    intercept: Value[F32]

    def at(self, x: Value[F32]) -> Value[F32]:
        return self.slope * x + self.intercept


@kernel
def evaluate(out: Array[F32], line: Line, x: Value[F32], row: Value[I64]) -> None:
    """Write line(x) to one row."""
    out[row] = line.at(x)


def a_list(line: list[int]) -> None:
    """A kernel's body with a parameter of no element type."""


def test_a_named_tuple_stands_for_its_fields_in_order() -> None:
    names = [parameter.name for parameter in evaluate.parameters]

    assert names == ["out", "slope", "intercept", "x", "row"]


def test_a_body_gets_the_named_tuple_it_asked_for() -> None:
    out = np.zeros(3, np.float32)

    evaluate.specialise().compile(default_compiler())(out, 2.0, 5.0, 10.0, 1)

    assert out.tolist() == [0, 25, 0]


def test_operands_that_are_missing_are_named() -> None:
    code = evaluate.specialise().compile(default_compiler())

    with pytest.raises(ShapeError, match="5 operands .*slope, intercept.*, got 2"):
        code.record(1.0, 2.0)


def test_a_parameter_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(TraceError, match="a_list: annotate line as Array"):
        Kernel(a_list)
