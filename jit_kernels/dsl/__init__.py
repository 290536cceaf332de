"""The language kernels are written in: Python that traces itself into LLVM IR."""

from __future__ import annotations

from jit_kernels.dsl.accumulators import (
    RunningMax,
    RunningSum,
    absolute_bits,
    fold_max,
    fold_sum,
    running_sum,
)
from jit_kernels.dsl.intrinsics import (
    dot_pairs,
    dot_quads,
    float_absolute,
    half_to_f32,
    round_to_int,
)
from jit_kernels.dsl.loops import claimed, if_else, loop, vectorized, when, while_loop
from jit_kernels.dsl.math import (
    bf16_to_f32,
    exp,
    exp_nonpositive,
    log,
    round_to_bf16,
    sigmoid,
    sqrt,
    tanh,
)
from jit_kernels.dsl.memory import Array, VectorIndex, pointer_at, stack_array
from jit_kernels.dsl.values import (
    VECTOR_LANES,
    Value,
    Variable,
    broadcast,
    constant,
    fma,
    index,
    lane_indices,
    maximum,
    minimum,
    select,
    zeros,
)

__all__ = [
    "VECTOR_LANES",
    "Array",
    "RunningMax",
    "RunningSum",
    "Value",
    "Variable",
    "VectorIndex",
    "absolute_bits",
    "bf16_to_f32",
    "broadcast",
    "claimed",
    "constant",
    "dot_pairs",
    "dot_quads",
    "exp",
    "exp_nonpositive",
    "float_absolute",
    "fma",
    "fold_max",
    "fold_sum",
    "half_to_f32",
    "if_else",
    "index",
    "lane_indices",
    "log",
    "loop",
    "maximum",
    "minimum",
    "pointer_at",
    "round_to_bf16",
    "round_to_int",
    "running_sum",
    "select",
    "sigmoid",
    "sqrt",
    "stack_array",
    "tanh",
    "vectorized",
    "when",
    "while_loop",
    "zeros",
]
