"""What the runtime needs beyond the kernel language: atomics, system calls, indirect calls.

Functions of one module are traced one after the other; they are the runtime's own and have no
record of operands. Knows nothing of workers or programs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from llvmlite import ir

from jit_kernels.compiler.target import data_layout
from jit_kernels.dsl import Array, Value, Variable, constant, if_else, stack_array, while_loop
from jit_kernels.dsl.intrinsics import pause
from jit_kernels.dsl.trace import PTR, Trace, current, llvm_type
from jit_kernels.isa import Isa
from jit_kernels.types import BOOL, I32, I64, U8, DType

__all__ = [
    "NULL",
    "NativeModule",
    "atomic_add",
    "atomic_load",
    "atomic_store",
    "call_address",
    "default_float_environment",
    "pointer",
    "restore_float_environment",
    "spin_while",
    "system_call",
]

D = TypeVar("D", bound=DType)
NULL: Any = ir.Constant(PTR, None)
_I32, _I64 = ir.IntType(32), ir.IntType(64)
# MXCSR and FPCR with every bit as the processor starts: round to nearest, subnormals kept,
# exceptions masked.
_MXCSR_DEFAULT = 0x1F80
_FPCR_DEFAULT = 0


class NativeModule:
    """Functions of one object file for one `Isa`."""

    def __init__(self, isa: Isa, name: str) -> None:
        self.isa = isa
        self._module: Any = ir.Module(name)
        self._module.triple = isa.triple
        self._module.data_layout = data_layout(isa)

    def __str__(self) -> str:
        return str(self._module)

    @contextmanager
    def function(self, name: str, arguments: list[Any], result: Any = None) -> Generator[list[Any]]:
        """Trace the body of `name`; yields its arguments.

        `result` is the type returned, and the body then ends with its own return.
        """
        signature = ir.FunctionType(result or ir.VoidType(), arguments)
        trace = Trace(self._module, self.isa, name, signature)
        with trace.active():
            yield list(trace.function.args)
            if result is None:
                trace.builder.ret_void()


def pointer(address: Value[I64]) -> Any:
    """An address as LLVM's pointer."""
    return current().builder.inttoptr(address.ir, PTR)


def _insert(instruction: Any) -> Any:
    builder = current().builder
    builder._insert(instruction)  # pyright: ignore[reportPrivateUsage]  # no public way
    return instruction


def atomic_load(cell: Array[D]) -> Value[D]:
    """The first element, sequentially consistent."""
    element, size = llvm_type(cell.dtype), cell.dtype.bits // 8
    loaded = current().builder.load_atomic(cell.pointer, "seq_cst", size, typ=element)
    return Value(loaded, cell.dtype)


def atomic_store(cell: Array[D], value: Value[D]) -> None:
    """Replace the first element, sequentially consistent."""
    # The builder's own method asks for a typed pointer.
    store = ir.instructions.StoreAtomicInstr
    size = cell.dtype.bits // 8
    _insert(store(current().builder.block, value.ir, cell.pointer, "seq_cst", size))


def atomic_add(cell: Array[D], amount: int) -> Value[D]:
    """Add to the first element, sequentially consistent; returns what was there."""
    operand = constant(amount, cell.dtype).ir
    before = current().builder.atomic_rmw("add", cell.pointer, operand, "seq_cst")
    return Value(before, cell.dtype)


class _Callee:
    """An address with a function's type, which is what LLVM's call instruction asks for."""

    type = PTR

    def __init__(self, address: Any, function_type: Any) -> None:
        self._address = address
        self.function_type = function_type

    def __str__(self) -> str:
        return str(self._address)

    def get_reference(self) -> str:
        """The address's name in the IR."""
        return str(self._address.get_reference())


def call_address(address: Value[I64], arguments: list[Any]) -> None:
    """Call the function at `address`, which returns nothing."""
    function_type = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    callee = _Callee(pointer(address), function_type)
    _insert(ir.instructions.CallInstr(current().builder.block, callee, arguments))


def system_call(number: int, arguments: list[Any]) -> Value[I64]:
    """Linux system call; its result, or -1."""
    trace = current()
    function = trace.declare("syscall", _I64, [_I64], var_arg=True)
    result = trace.builder.call(function, [ir.Constant(_I64, number), *arguments])
    return Value(result, I64)


def spin_while(
    waiting: Callable[[], Value[BOOL]], patience: Value[I64], otherwise: Callable[[], None]
) -> None:
    """Wait while `waiting()` holds: first `patience` pauses, then `otherwise()` each round."""
    rounds = Variable(constant(0, I64))
    for _ in while_loop(waiting):
        for patient in if_else(rounds.get() < patience):
            if patient:
                pause()
                rounds.set(rounds.get() + 1)
            else:
                otherwise()


def _mxcsr(direction: str, cell: Array[U8]) -> None:
    function = current().declare(f"llvm.x86.sse.{direction}mxcsr", ir.VoidType(), [PTR])
    current().builder.call(function, [cell.pointer])


def default_float_environment() -> Array[U8]:
    """Set rounding and subnormals to the default; returns where the former state is kept."""
    trace = current()
    saved = stack_array(U8, 8)
    if trace.isa.is_x86:
        fresh = stack_array(I32, 2)
        fresh[0] = _MXCSR_DEFAULT
        _mxcsr("st", saved)
        _mxcsr("ld", fresh.view(U8))
    else:
        state = trace.call("llvm.aarch64.get.fpcr", _I64, [])
        saved.view(I64)[0] = Value(state, I64)
        trace.call("llvm.aarch64.set.fpcr", ir.VoidType(), [ir.Constant(_I64, _FPCR_DEFAULT)])
    return saved


def restore_float_environment(saved: Array[U8]) -> None:
    """Undo `default_float_environment`."""
    trace = current()
    if trace.isa.is_x86:
        _mxcsr("ld", saved)
    else:
        trace.call("llvm.aarch64.set.fpcr", ir.VoidType(), [saved.view(I64)[0].ir])
