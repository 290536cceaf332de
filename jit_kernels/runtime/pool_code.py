"""The worker pool in IR: threads that spin, then sleep; a barrier; fork and join.

    caller                          worker 1..n-1
    task, argument; done = 0        spin while epoch = seen, then sleep on it
    epoch = next, a; wake      -->  seen = epoch
    task(0, a, argument)            where i < a: task(i, a, argument)
    spin while done < a-1      <--                done += 1

The epoch's word holds the number `a` of workers that it is for, so that one that wakes late cannot
take the next epoch's number for its own. Knows nothing of what a task does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from llvmlite import ir

from jit_kernels.dsl import (
    Array,
    Value,
    Variable,
    constant,
    if_else,
    loop,
    select,
    when,
    while_loop,
)
from jit_kernels.dsl.intrinsics import cycle_counter
from jit_kernels.dsl.trace import PTR, current
from jit_kernels.isa import Isa
from jit_kernels.runtime.native import (
    NULL,
    NativeModule,
    atomic_add,
    atomic_load,
    atomic_store,
    call_address,
    default_float_environment,
    pointer,
    restore_float_environment,
    spin_while,
    system_call,
)
from jit_kernels.types import I32, I64, U8, DType

__all__ = ["ACTIVE_BITS", "BLOCK_WORDS", "CONTROL_BYTES", "Field", "barrier", "emit_pool"]

D = TypeVar("D", bound=DType)
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_EVERYONE = 2**31 - 1
_CLOCK_MONOTONIC = 1


class Field(IntEnum):
    """Where a pool's state lies in its control block, in bytes.

    What different threads write is 128 bytes apart: processors fetch lines in pairs.
    """

    EPOCH = 0  # i32: rises with every task; its low bits are the number of active workers
    DONE = 128  # i32: workers that have finished it
    SLEEPERS = 256  # i32
    ARRIVED = 384  # i32: workers at the barrier
    GENERATION = 512  # i32: rises when the barrier opens
    TASK = 640  # i64: address
    ARGUMENT = 648  # i64: address
    WAITED = 656  # i64: cycles of waits that were longer than any work explains
    SPIN = 664  # i64: pauses before sleeping or yielding
    STOPPING = 672  # i64
    STARTED = 680  # i64: threads that were created
    RAN = 688  # i64: cycles of all tasks, as the caller saw them
    ENDED = 696  # two i64: the system's monotonic clock when the last task ended, s and ns


CONTROL_BYTES = 768
ACTIVE_BITS = 11  # of the epoch's word
_EPOCH_STEP = 1 << ACTIVE_BITS
_STALL_CYCLES = 5_000_000  # one to three milliseconds: a time slice is as long, no operation is
BLOCK_WORDS = 4  # a thread's own block: handle, control block, worker index, thread id


def _cell(control: Any, which: Field, dtype: type[D]) -> Array[D]:
    """The cell `which` of a control block."""
    return Array(control, U8).offset(int(which)).view(dtype)


def barrier(control: Any, num_workers: Value[I64]) -> None:
    """Wait until every worker is here."""
    arrived, generation = _cell(control, Field.ARRIVED, I32), _cell(control, Field.GENERATION, I32)
    before = atomic_load(generation)
    last = atomic_add(arrived, 1).equals(num_workers.to(I32) - 1)
    for opens in if_else(last):
        if opens:
            atomic_store(arrived, constant(0, I32))
            atomic_store(generation, before + 1)
        else:
            _wait(control, generation, before)


def _wait(control: Any, cell: Array[I32], value: Value[I32]) -> None:
    """Wait while a cell holds a value: spin, then yield."""

    def linger() -> None:
        trace = current()
        trace.builder.call(trace.module.globals["linger"], [control, cell.pointer, value.ir])

    patience = _cell(control, Field.SPIN, I64)[0]
    spin_while(lambda: atomic_load(cell).equals(value), patience, linger)


def _linger(control: Any, cell: Array[I32], value: Value[I32]) -> None:
    """Yield while a cell holds a value; note the cycles where they were many."""
    begin = cycle_counter()
    for _ in while_loop(lambda: atomic_load(cell).equals(value)):
        current().call("sched_yield", _I32, [])
    waited = cycle_counter() - begin
    with when(waited > _STALL_CYCLES):
        cell, before = _cell(control, Field.WAITED, I64).pointer, waited.ir
        current().builder.atomic_rmw("add", cell, before, "monotonic")


def emit_pool(module: NativeModule) -> None:
    """Trace `linger`, `worker`, `start`, `run` and `stop`."""
    with module.function("linger", [PTR, PTR, _I32]) as (control, cell, value):
        _linger(control, Array(cell, I32), Value(value, I32))
    with module.function("worker", [PTR], PTR) as (block,):
        _worker(Array(block, I64), module.isa)
        current().builder.ret(NULL)
    # Errors of pthread_create are returned as they are; STARTED says how far it came.
    with module.function("start", [PTR, PTR, _I64], _I32) as (control, blocks, num_workers):
        _start(control, Array(blocks, I64), Value(num_workers, I64))
    with module.function("run", [PTR, _I64, PTR, PTR, _I64, _I64]) as arguments:
        control, task, argument, counters, num_words, num_active = arguments
        for word in loop(Value(num_words, I64)):
            Array(counters, I64)[word] = 0
        _run(control, Value(task, I64), argument, Value(num_active, I64), module.isa)
    with module.function("stop", [PTR, PTR]) as (control, blocks):
        _stop(control, Array(blocks, I64), module.isa)


def _worker(block: Array[I64], isa: Isa) -> None:
    control, me = pointer(block[1]), block[2]
    epoch = _cell(control, Field.EPOCH, I32)
    block[3] = system_call(186 if isa.is_x86 else 178, [])  # gettid
    seen, stopping = Variable(constant(0, I32)), Variable(constant(0, I64))
    wanted = Variable(constant(1, I64))

    def sleep() -> None:
        atomic_add(_cell(control, Field.SLEEPERS, I32), 1)
        _futex(isa, epoch, _FUTEX_WAIT_PRIVATE, seen.get().to(I64))
        atomic_add(_cell(control, Field.SLEEPERS, I32), -1)

    for _ in while_loop(lambda: stopping.get().equals(0)):
        # One that was passed over sleeps at once: it is because processors are wanted.
        patience = select(wanted.get() > 0, _cell(control, Field.SPIN, I64)[0], 0)
        spin_while(lambda: atomic_load(epoch).equals(seen.get()), patience, sleep)
        seen.set(atomic_load(epoch))
        num_active = (seen.get() & (_EPOCH_STEP - 1)).to(I64)
        wanted.set(select(me < num_active, constant(1, I64), constant(0, I64)))
        stopping.set(_cell(control, Field.STOPPING, I64)[0])
        with when(stopping.get().equals(0) & (me < num_active)):
            default_float_environment()
            argument = pointer(_cell(control, Field.ARGUMENT, I64)[0])
            task = _cell(control, Field.TASK, I64)[0]
            call_address(task, [me.ir, num_active.ir, argument])
            atomic_add(_cell(control, Field.DONE, I32), 1)


def _futex(isa: Isa, cell: Array[I32], operation: int, value: Value[I64]) -> None:
    number = 202 if isa.is_x86 else 98
    zero = ir.Constant(_I64, 0)
    system_call(number, [cell.pointer, ir.Constant(_I64, operation), value.ir, NULL, NULL, zero])


def _release(control: Any, num_active: Value[I64], isa: Isa) -> None:
    """Let the workers see a new epoch; a lone caller wakes nobody."""
    epoch = _cell(control, Field.EPOCH, I32)
    following = (atomic_load(epoch) & -_EPOCH_STEP) + _EPOCH_STEP
    atomic_store(epoch, following | num_active.to(I32))
    with when((num_active > 1) & (atomic_load(_cell(control, Field.SLEEPERS, I32)) > 0)):
        _futex(isa, epoch, _FUTEX_WAKE_PRIVATE, constant(_EVERYONE, I64))


def _run(control: Any, task: Value[I64], argument: Any, num_active: Value[I64], isa: Isa) -> None:
    saved, begin = default_float_environment(), cycle_counter()
    done = _cell(control, Field.DONE, I32)
    _cell(control, Field.TASK, I64)[0] = task
    address = current().builder.ptrtoint(argument, _I64)
    _cell(control, Field.ARGUMENT, I64)[0] = Value(address, I64)
    atomic_store(done, constant(0, I32))
    _release(control, num_active, isa)
    call_address(task, [constant(0, I64).ir, num_active.ir, argument])
    others = num_active.to(I32) - 1
    seen = Variable(atomic_load(done))
    for _ in while_loop(lambda: seen.get() < others):
        _wait(control, done, seen.get())
        seen.set(atomic_load(done))
    ran = _cell(control, Field.RAN, I64)
    ran[0] = ran[0] + cycle_counter() - begin
    trace = current()
    clock = trace.declare("clock_gettime", _I32, [_I32, PTR])
    ended = _cell(control, Field.ENDED, I64).pointer
    trace.builder.call(clock, [ir.Constant(_I32, _CLOCK_MONOTONIC), ended])
    restore_float_environment(saved)


def _start(control: Any, blocks: Array[I64], num_workers: Value[I64]) -> None:
    trace = current()
    create = trace.declare("pthread_create", _I32, [PTR, PTR, PTR, PTR])
    entry = trace.module.globals["worker"]
    started = _cell(control, Field.STARTED, I64)
    for index in loop(1, num_workers):
        block = blocks.offset(index * BLOCK_WORDS)
        block[1] = Value(trace.builder.ptrtoint(control, _I64), I64)
        block[2] = index
        arguments = [block.pointer, NULL, entry, block.pointer]
        error = Value(trace.builder.call(create, arguments), I32)
        with when(error.differs(0)):
            trace.builder.ret(error.ir)
        started[0] = index
    trace.builder.ret(ir.Constant(_I32, 0))


def _stop(control: Any, blocks: Array[I64], isa: Isa) -> None:
    _cell(control, Field.STOPPING, I64)[0] = 1
    _release(control, constant(_EPOCH_STEP - 1, I64), isa)
    for index in loop(1, _cell(control, Field.STARTED, I64)[0] + 1):
        handle = blocks[index * BLOCK_WORDS]
        current().call("pthread_join", _I32, [handle.ir, NULL])
