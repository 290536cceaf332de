"""`@kernel`: a Python function that is traced into machine code once per specialisation.

Parameters annotated `Array[T]` or `Value[T]` are read from the operation's record, one 64-bit
word each, in order; one annotated with a NamedTuple of such stands for its fields, so that kernels
may share a list of operands. Keyword-only parameters are constants of the specialisation (tile
sizes, formats). Every kernel is SPMD: all workers call it with the same record, and the body shares
the work by `worker()` or `claimed()`.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import struct
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from llvmlite import ir

from jit_kernels.compiler import Compiler, emit_assembly, emit_object, optimised_ir
from jit_kernels.compiler.fingerprint import source_fingerprint
from jit_kernels.compiler.target import data_layout, llvm_version
from jit_kernels.dsl.memory import Array, pointer_at
from jit_kernels.dsl.trace import PTR, Trace, current
from jit_kernels.dsl.values import Value
from jit_kernels.errors import ShapeError, TraceError
from jit_kernels.isa import Isa, detect
from jit_kernels.types import F32, I64, DType

__all__ = ["CompiledKernel", "Kernel", "Parameter", "Specialisation", "Worker", "kernel", "worker"]

Constant = int | str | bool
View = Literal["source", "ir", "llvm", "asm"]
Argument = int | float | np.ndarray[Any, Any]
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Worker:
    """Which of how many workers runs this body."""

    index: Value[I64]
    count: Value[I64]

    def share(self, total: Value[I64]) -> tuple[Value[I64], Value[I64]]:
        """Begin and end of this worker's contiguous share of `total` items."""
        return total * self.index // self.count, total * (self.index + 1) // self.count


class Parameter(NamedTuple):
    """One word of a kernel's record."""

    name: str
    is_array: bool
    dtype: type[DType]


class _Argument(NamedTuple):
    """A positional argument of a body: one word, or what `build` makes of several."""

    words: list[Parameter]
    build: Callable[..., Any]


def worker() -> Worker:
    """The worker that runs this kernel body."""
    arguments = current().function.args
    return Worker(Value(arguments[0], I64), Value(arguments[1], I64))


class Kernel:
    """A kernel's body and parameters; `specialise` it to get machine code."""

    def __init__(self, body: Callable[..., None]) -> None:
        self.body = body
        self.name = body.__name__
        self.__doc__ = body.__doc__
        hints = typing.get_type_hints(body)
        self._arguments: list[_Argument] = []
        self.constants: dict[str, Constant | None] = {}
        for parameter in inspect.signature(body).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                default = parameter.default
                self.constants[parameter.name] = None if default is parameter.empty else default
            else:
                self._arguments.append(_argument(self.name, parameter.name, hints))
        self.parameters = [word for argument in self._arguments for word in argument.words]

    def __repr__(self) -> str:
        words = ", ".join(f"{p.name}: {p.dtype.label}" for p in self.parameters)
        return f"<kernel {self.name}({words})>"

    @property
    def formula(self) -> str:
        """First line of the module's docstring: the formula and its source."""
        module = inspect.getmodule(self.body)
        return (module.__doc__ or "").strip().partition("\n")[0] if module else ""

    @property
    def source(self) -> str:
        """Python source of the body."""
        return inspect.getsource(self.body)

    def specialise(self, **constants: Constant) -> Specialisation:
        """Fix the constants; raises `TraceError` naming an unknown or missing one."""
        unknown = constants.keys() - self.constants.keys()
        merged = {**self.constants, **constants}
        missing = [name for name, value in merged.items() if value is None]
        if unknown or missing:
            raise TraceError(
                f"kernel {self.name}: unknown constants {sorted(unknown)}, missing {missing}; "
                f"it has {sorted(self.constants)}"
            )
        fixed = tuple((name, value) for name, value in merged.items() if value is not None)
        return Specialisation(self, fixed)

    def trace(self, words: Iterator[Any], constants: dict[str, Constant]) -> None:
        """Run the body on a traced value for each parameter."""
        arguments = [a.build(*islice(words, len(a.words))) for a in self._arguments]
        self.body(*arguments, **constants)

    def show(self, what: View = "source", isa: Isa | None = None, **constants: Constant) -> str:
        """What `Specialisation.show` does; the source needs no constants."""
        if what == "source":
            return self.source
        return self.specialise(**constants).show(what, isa)


def _argument(kernel_name: str, name: str, hints: dict[str, Any]) -> _Argument:
    hint = hints.get(name)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        fields = typing.get_type_hints(hint)
        return _Argument([_parameter(kernel_name, field, fields) for field in fields], hint)
    return _Argument([_parameter(kernel_name, name, hints)], _as_it_is)


def _as_it_is(word: Any) -> Any:
    return word


def _parameter(kernel_name: str, name: str, hints: dict[str, Any]) -> Parameter:
    hint = hints.get(name)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin not in (Array, Value) or len(arguments) != 1:
        raise TraceError(
            f"kernel {kernel_name}: annotate {name} as Array[T], Value[T], or a NamedTuple of such"
        )
    return Parameter(name, origin is Array, arguments[0])


@dataclass(frozen=True)
class Specialisation:
    """A kernel with its constants fixed."""

    kernel: Kernel
    constants: tuple[tuple[str, Constant], ...]

    @property
    def symbol(self) -> str:
        """Name of the function in the object file."""
        return "__".join([self.kernel.name, *(f"{k}_{v}" for k, v in self.constants)])

    def ir(self, isa: Isa) -> str:
        """LLVM IR as generated, before LLVM's own passes."""
        module: Any = ir.Module(self.symbol)
        module.triple = isa.triple
        module.data_layout = data_layout(isa)
        i64 = ir.IntType(64)
        function_type = ir.FunctionType(ir.VoidType(), [i64, i64, PTR])
        trace = Trace(module, isa, self.symbol, function_type)
        with trace.active():
            record = Array(trace.function.args[2], I64)
            words = (_load(record, k, p) for k, p in enumerate(self.kernel.parameters))
            self.kernel.trace(words, dict(self.constants))
            trace.builder.ret_void()
        # llvmlite knows neither. Without no-builtins LLVM turns short loops into calls of memset
        # and memcpy; without alignstack it keeps vectors on the stack across cache lines.
        return str(module).replace(" nounwind", ' nounwind alignstack(64) "no-builtins"', 1)

    def key(self, isa: Isa) -> str:
        """What the object depends on; kernels outside this package are keyed by their IR."""
        inside = self.kernel.body.__module__.startswith("jit_kernels.")
        source = source_fingerprint(Path(__file__).parent) if inside else self.ir(isa)
        parts = (self.symbol, source, isa.triple, isa.cpu, isa.features, repr(isa), llvm_version())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def compile(self, compiler: Compiler) -> CompiledKernel:
        """Machine code in this process, from the object cache where it is there."""
        isa = compiler.isa
        address = compiler.address(
            self.key(isa), self.symbol, lambda: emit_object(self.ir(isa), isa)
        )
        return CompiledKernel(self, address, compiler)

    def show(self, what: View = "source", isa: Isa | None = None) -> str:
        """The body in Python, the IR as generated or optimised, or the assembly."""
        if what == "source":
            return self.kernel.source
        target = isa or detect()
        text = self.ir(target)
        if what == "ir":
            return text
        return optimised_ir(text, target) if what == "llvm" else emit_assembly(text, target)


def _load(record: Array[I64], position: int, parameter: Parameter) -> Any:
    if parameter.is_array:
        return pointer_at(record, position, parameter.dtype)
    word = record.offset(position)
    return word.view(parameter.dtype)[0]


@dataclass(frozen=True)
class CompiledKernel:
    """A specialisation's machine code; holds the compiler that owns it."""

    specialisation: Specialisation
    address: int
    compiler: Compiler

    @cached_property
    def _function(self) -> Any:
        return _SIGNATURE(self.address)

    def record(self, *arguments: Argument) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The operation's parameter record; arrays must outlive it. Raises ShapeError."""
        parameters = self.specialisation.kernel.parameters
        if len(arguments) != len(parameters):
            raise ShapeError(
                f"kernel {self.specialisation.kernel.name} takes {len(parameters)} operands "
                f"({', '.join(p.name for p in parameters)}), got {len(arguments)}"
            )
        words = [_word(p, a) for p, a in zip(parameters, arguments, strict=True)]
        return np.array(words, np.int64)

    def __call__(self, *arguments: Argument, worker: int = 0, num_workers: int = 1) -> None:
        """Run one worker's share in this thread."""
        record = self.record(*arguments)
        self._function(worker, num_workers, record.ctypes.data)


def _word(parameter: Parameter, argument: Argument) -> int:
    if isinstance(argument, np.ndarray):
        return int(argument.ctypes.data)
    if parameter.dtype is F32 and not parameter.is_array:
        return int.from_bytes(struct.pack("<f", argument) + bytes(4), "little")
    return int(argument)


def kernel(body: Callable[..., None]) -> Kernel:
    """Declare `body` as a kernel."""
    return Kernel(body)
