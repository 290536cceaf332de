"""The interpreters of a program's table, in IR: plain, counting cycles, and with random delays.

Each worker walks the same table. An operation is four words: the kernel's address, its record,
the address of a counter of rows, and one unused; a barrier follows where that counter exceeds
`REDUNDANT_ROWS`. A table whose last operation ends with a barrier may be walked several times, for
as long as that operation wants. Three functions instead of one with flags, so that the plain one
pays nothing.
"""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from jit_kernels.activation_layout import REDUNDANT_ROWS
from jit_kernels.dsl import Array, Value, Variable, constant, loop, pointer_at, when, while_loop
from jit_kernels.dsl.intrinsics import cycle_counter, pause
from jit_kernels.dsl.trace import PTR
from jit_kernels.runtime.native import NativeModule, call_address, pointer
from jit_kernels.runtime.pool_code import barrier
from jit_kernels.types import I64

__all__ = ["OPERATION_WORDS", "WALKERS", "Header", "emit_walkers"]

OPERATION_WORDS = 4
WALKERS = ("walk", "walk_counting", "walk_delayed")
_I64 = ir.IntType(64)


class Header(IntEnum):
    """Words of a program's header, the argument of a walker."""

    CONTROL = 0  # address of the pool's control block
    TABLE = 1  # address of the operations
    NUM_OPERATIONS = 2
    CYCLES = 3  # address of one word per operation
    SEED = 4  # of the delays
    STEP = 5
    REPEAT = 6  # address of {walks wanted, walks done}; 0 for one walk
    COUNTERS = 7  # address of the words that are 0 when a walk begins
    NUM_COUNTER_WORDS = 8


def emit_walkers(module: NativeModule) -> None:
    """Trace every walker: `void name(i64 worker, i64 num_workers, ptr header)`."""
    with module.function("barrier", [PTR, _I64]) as (control, num_workers):
        barrier(control, Value(num_workers, I64))
    for name in WALKERS:
        with module.function(name, [_I64, _I64, PTR]) as (worker, num_workers, header):
            _Walk(Value(worker, I64), Value(num_workers, I64), Array(header, I64)).trace(name)
    with module.function("read_cycles", [PTR]) as (out,):
        Array(out, I64)[0] = cycle_counter()


class _Walk:
    """One walker's body."""

    def __init__(self, worker: Value[I64], num_workers: Value[I64], header: Array[I64]) -> None:
        self._worker = worker
        self._num_workers = num_workers
        self._header = header

    def trace(self, name: str) -> None:
        last = Variable(cycle_counter()) if name == "walk_counting" else None
        more = Variable(constant(1, I64))
        for _ in while_loop(lambda: more.get() > 0):
            self._walk(name, last)
            more.set(0)
            with when(self._header[Header.REPEAT].differs(0)):
                repeat = pointer_at(self._header, Header.REPEAT, I64)
                with when(repeat[1] < repeat[0]):
                    self._begin_again()
                    more.set(1)

    def _begin_again(self) -> None:
        """Make the counters 0 between two walks: nobody is in either."""
        control = pointer(self._header[Header.CONTROL])
        with when(self._worker.equals(0)):
            counters = pointer_at(self._header, Header.COUNTERS, I64)
            for word in loop(self._header[Header.NUM_COUNTER_WORDS]):
                counters[word] = 0
            self._header[Header.STEP] = self._header[Header.STEP] + 1
        barrier(control, self._num_workers)

    def _walk(self, name: str, last: Variable[I64] | None) -> None:
        table = pointer_at(self._header, Header.TABLE, I64)
        for index in loop(self._header[Header.NUM_OPERATIONS]):
            if name == "walk_delayed":
                self._delay(index)
            self._operation(table.offset(index * OPERATION_WORDS))
            if last is not None:
                self._count(index, last)

    def _operation(self, words: Array[I64]) -> None:
        record = pointer(words[1])
        call_address(words[0], [self._worker.ir, self._num_workers.ir, record])
        with when(pointer_at(words, 2, I64)[0] > REDUNDANT_ROWS):
            barrier(pointer(self._header[Header.CONTROL]), self._num_workers)

    def _count(self, index: Value[I64], last: Variable[I64]) -> None:
        """Add what passed since the last operation, as worker 0 saw it."""
        now = cycle_counter()
        with when(self._worker.equals(0)):
            cycles = pointer_at(self._header, Header.CYCLES, I64)
            cycles[index] = cycles[index] + now - last.get()
        last.set(now)

    def _delay(self, index: Value[I64]) -> None:
        """Pause 0..4096 times, each length as likely as its double.

        Most delays are short, yet the long ones outlast an operation's whole work.
        """
        mixed = self._header[Header.SEED] + self._header[Header.STEP] * 0x9E3779B97F4A7C15
        mixed = mixed + index * 0x517CC1B727220A95 + self._worker * 0x2545F4914F6CDD1D
        for multiplier in (0x3F58476D1CE4E5B9, 0x14D049BB133111EB):
            mixed = (mixed ^ ((mixed >> 31) & 0x1FFFFFFFF)) * multiplier
        exponent = (mixed >> 60) & 15
        for _ in loop((constant(1, I64) << exponent) >> 3):
            pause()
