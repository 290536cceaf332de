"""A program: operations in order, run by all workers of a pool with one foreign call a step.

The table of operations never changes; what changes from step to step lies in the arrays the
records point to. Knows nothing of what the operations compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, Protocol

import numpy as np

from jit_kernels.errors import RuntimeFault
from jit_kernels.runtime.buffers import aligned
from jit_kernels.runtime.clock import cycles_per_second
from jit_kernels.runtime.threads import Pool
from jit_kernels.runtime.walker import OPERATION_WORDS, Header

__all__ = [
    "CLAIM_COUNTER",
    "Argument",
    "Barrier",
    "ClaimCounter",
    "MachineCode",
    "Operation",
    "Profile",
    "Program",
]

_LINE_WORDS = 8


class ClaimCounter(Enum):
    """Stands for an operand: a counter of its own line that is 0 when each step begins."""

    CLAIM_COUNTER = "claim counter"


CLAIM_COUNTER: Final = ClaimCounter.CLAIM_COUNTER
Argument = int | float | np.ndarray[Any, Any] | Literal[ClaimCounter.CLAIM_COUNTER]
Words = np.ndarray[Any, np.dtype[np.int64]]


class Barrier(Enum):
    """Whether the workers wait for each other after an operation.

    SHARED: where the step has more rows than every worker computes for itself.
    """

    ALWAYS = "always"
    SHARED = "shared"
    NEVER = "never"


class MachineCode(Protocol):
    """A compiled kernel, as far as a program looks at it."""

    @property
    def address(self) -> int:
        """Address of `void(i64 worker, i64 num_workers, ptr record)`."""
        ...

    def record(self, *arguments: int | float | np.ndarray[Any, Any]) -> Words:
        """The operands as 64-bit words."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One kernel with its operands; arrays are kept alive by the program.

    `rows` is the counter that decides a SHARED barrier: an int64 array whose first element must
    not change while a step runs.
    """

    kernel: MachineCode
    arguments: tuple[Argument, ...]
    barrier: Barrier = Barrier.ALWAYS
    rows: Words | None = None
    label: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Seconds of each operation of one step, as worker 0 saw them, its wait included."""

    labels: tuple[str, ...]
    seconds: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def total_seconds(self) -> float:
        """Seconds of the whole step."""
        return float(self.seconds.sum())


class Program:
    """`operations` bound to the workers of `pool`.

    `repeat`, int64 {walks wanted, walks done}, lets one `run` walk the operations several times:
    the last operation counts the walks done, and may lower those wanted; the caller sets both.
    With `chaos_seed`, for tests, every worker waits a pseudo-random time before each operation,
    another one each step, so that a missing barrier shows. Raises `RuntimeFault`.
    """

    def __init__(
        self,
        pool: Pool,
        operations: Sequence[Operation],
        *,
        chaos_seed: int | None = None,
        repeat: Words | None = None,
    ) -> None:
        self.pool = pool
        self.operations = tuple(operations)
        self._chaos = chaos_seed is not None
        self._walker = pool.address("walk_delayed" if self._chaos else "walk")
        operands = [operand for op in self.operations for operand in op.arguments]
        num_counters = sum(isinstance(operand, ClaimCounter) for operand in operands)
        self._counters = aligned((num_counters, _LINE_WORDS), np.int64)
        # A barrier follows an operation where its counter of rows is large; these always are
        # and never are.
        self._limits = np.array([np.iinfo(np.int64).max, 0], np.int64)
        self._records = self._bind()
        self._table = self._tabulate()
        self._cycles = aligned(max(1, len(self.operations)), np.int64)
        self._header = aligned(len(Header), np.int64)
        self._header[Header.CONTROL] = pool.control_address
        self._header[Header.TABLE] = self._table.ctypes.data
        self._header[Header.NUM_OPERATIONS] = len(self.operations)
        self._header[Header.CYCLES] = self._cycles.ctypes.data
        self._header[Header.SEED] = (chaos_seed or 0) % 2**63
        self._header[Header.COUNTERS] = self._counters.ctypes.data
        self._header[Header.NUM_COUNTER_WORDS] = self._counters.size
        self._repeat = repeat
        if repeat is not None:
            self._header[Header.REPEAT] = self._address_of_walks(repeat)
        self._where = (self._header.ctypes.data, self._counters.ctypes.data, self._counters.size)

    def __repr__(self) -> str:
        return f"<Program of {len(self.operations)} operations on {self.pool!r}>"

    def run(self) -> None:
        """One step: every operation once, or as often as `repeat` says. Raises `RuntimeFault`."""
        if self._chaos:
            self._header[Header.STEP] += 1
        self.pool.run(self._walker, *self._where)

    def profile(self) -> Profile:
        """A `run`, timed operation by operation, walks added up. Raises `RuntimeFault`."""
        rate = cycles_per_second(self.pool.compiler)
        self._cycles[:] = 0
        self.pool.run(self.pool.address("walk_counting"), *self._where)
        cycles = self._cycles[: len(self.operations)]
        return Profile(tuple(op.label for op in self.operations), cycles / rate)

    def _address_of_walks(self, repeat: Words) -> int:
        if repeat.dtype != np.int64 or repeat.size < 2:
            raise RuntimeFault(f"a program's walks are two int64, not {repeat!r}")
        if not self.operations or self.operations[-1].barrier is not Barrier.ALWAYS:
            raise RuntimeFault("a program that is walked again must end with a barrier")
        return int(repeat.ctypes.data)

    def _bind(self) -> list[Words]:
        """A record for each operation, claim counters in place."""
        records: list[Words] = []
        counters = iter(self._counters)
        for operation in self.operations:
            operands = [
                next(counters) if isinstance(argument, ClaimCounter) else argument
                for argument in operation.arguments
            ]
            records.append(operation.kernel.record(*operands))
        return records

    def _tabulate(self) -> Words:
        table = aligned((max(1, len(self.operations)), OPERATION_WORDS), np.int64)
        for row, operation, record in zip(table, self.operations, self._records, strict=False):
            row[0] = operation.kernel.address
            row[1] = record.ctypes.data
            row[2] = self._rows_counter(operation)
        table.flags.writeable = False
        return table

    def _rows_counter(self, operation: Operation) -> int:
        if operation.barrier is not Barrier.SHARED:
            always = operation.barrier is Barrier.ALWAYS
            return int(self._limits[0 if always else 1 :].ctypes.data)
        if operation.rows is None or operation.rows.dtype != np.int64 or not operation.rows.size:
            raise RuntimeFault(
                f"operation {operation.label!r} has a shared barrier: give its int64 counter of "
                f"rows, not {operation.rows!r}"
            )
        return int(operation.rows.ctypes.data)
