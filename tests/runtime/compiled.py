"""Small kernels for the tests of the runtime; each shows one thing about who ran it and when."""

from __future__ import annotations

from llvmlite import ir

from jit_kernels.compiler import Compiler, default_compiler
from jit_kernels.dsl import Array, Value, claimed, loop, when, while_loop
from jit_kernels.dsl.intrinsics import pause
from jit_kernels.dsl.trace import PTR, current
from jit_kernels.kernel import CompiledKernel, Kernel, kernel, worker
from jit_kernels.runtime.native import atomic_load, atomic_store
from jit_kernels.types import F32, I32, I64

__all__ = [
    "compiled",
    "compiler",
    "count_visits",
    "count_walk",
    "fill",
    "gather_halved",
    "load_float_state",
    "rotate",
    "store_float_state",
    "take_items",
    "wait_for",
]


def compiler() -> Compiler:
    return default_compiler()


def compiled(body: Kernel) -> CompiledKernel:
    """`body`, which has no constants, as machine code."""
    return body.specialise().compile(compiler())


@kernel
def count_visits(visits: Array[I64]) -> None:
    """Every worker adds one to its own cell."""
    me = worker().index
    visits[me] = visits[me] + 1


@kernel
def take_items(num_items: Value[I64], taken: Array[I64], counter: Array[I64]) -> None:
    """Whoever claims an item adds one to its cell."""
    for item in claimed(counter, num_items):
        taken[item] = taken[item] + 1


@kernel
def count_walk(repeat: Array[I64], last: Array[I64]) -> None:
    """Count a walk; walk number `last` is the last whatever was wanted."""
    with when(worker().index.equals(0)):
        repeat[1] = repeat[1] + 1
        with when(repeat[1].equals(last[0])):
            repeat[0] = repeat[1]


@kernel
def fill(number: Array[I64], n: Value[I64], out: Array[I64]) -> None:
    """Each worker writes the number into its share."""
    begin, end = worker().share(n)
    for position in loop(begin, end):
        out[position] = number[0]


@kernel
def rotate(values: Array[I64], n: Value[I64], out: Array[I64]) -> None:
    """Each worker reads what another worker's share holds."""
    begin, end = worker().share(n)
    for position in loop(begin, end):
        out[position] = values[(position + n // 2) % n] + 1


@kernel
def wait_for(flag: Array[I32], arrived: Array[I32]) -> None:
    """Says that it runs, then runs until the flag is set."""
    atomic_store(arrived, Value(ir.Constant(ir.IntType(32), 1), I32))
    for _ in while_loop(lambda: atomic_load(flag).equals(0)):
        pause()


@kernel
def store_float_state(states: Array[I32]) -> None:
    """Each worker's MXCSR."""
    cell = states.offset(worker().index)
    _mxcsr("st", cell)


@kernel
def load_float_state(state: Array[I32]) -> None:
    """Set the calling thread's MXCSR."""
    _mxcsr("ld", state)


@kernel
def gather_halved(number: Array[F32], out: Array[F32]) -> None:
    """Each worker's half of a number."""
    out[worker().index] = number[0] * 0.5


def _mxcsr(direction: str, cell: Array[I32]) -> None:
    name = f"llvm.x86.sse.{direction}mxcsr"
    current().builder.call(current().declare(name, ir.VoidType(), [PTR]), [cell.pointer])
