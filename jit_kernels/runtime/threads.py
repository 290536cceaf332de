"""Worker threads of one process: start them, run a task on all of them, join them.

A task is compiled code, `void task(i64 worker, i64 num_workers, ptr argument)`; the calling
thread is worker 0. Knows nothing of operations or of how many threads are wise.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jit_kernels.compiler import Compiler
from jit_kernels.errors import RuntimeFault
from jit_kernels.runtime.buffers import aligned
from jit_kernels.runtime.contention import Contention
from jit_kernels.runtime.image import native_addresses
from jit_kernels.runtime.pool_code import BLOCK_WORDS, CONTROL_BYTES, Field
from jit_kernels.runtime.topology import thread_plan

__all__ = ["MAX_THREADS", "Pool", "delay_seconds", "idle_of", "idle_seconds"]

MAX_THREADS = 1024
# About 0.3 ms: longer than the pause between two steps of a decode loop.
_PATIENT_SPIN = 20_000
_LONG, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_LIBC = ctypes.PyDLL(None)
_MOST_BYTES = 1 << 16
# A fault in a worker must still be reported as one; everything else is for Python's threads.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class Pool:
    """`num_threads` workers, the caller among them; a context manager.

    `spin` is how many pauses a waiting worker makes before it sleeps or yields; by default many
    where every worker has a core of its own, else none. A patient pool uses fewer workers while
    other programs take its processors (`Contention`). Raises `RuntimeFault`.
    """

    def __init__(
        self,
        num_threads: int,
        compiler: Compiler,
        *,
        spin: int | None = None,
        contention: Contention | None = None,
    ) -> None:
        if not 1 <= num_threads <= MAX_THREADS:
            raise RuntimeFault(
                f"a pool of {num_threads} threads: ask for between 1 and {MAX_THREADS}"
            )
        if spin is None:
            spin = _PATIENT_SPIN if num_threads <= thread_plan().usable else 0
        self.num_threads = num_threads
        self.compiler = compiler
        self.spin = spin
        self._blocks = aligned((num_threads, BLOCK_WORDS), np.int64)
        self._contention = contention or (
            Contention(num_threads, partial(delay_seconds, self._blocks), _idle_counter())
            if spin
            else None
        )
        self._cycles = (0, 0)
        self.held_up_seconds = 0.0
        """How long the last task's caller then waited for the interpreter's lock."""
        self._addresses = native_addresses(compiler)
        self._control = aligned(CONTROL_BYTES // 8, np.int64)
        self.control_address = int(self._control.ctypes.data)
        self._control[Field.SPIN // 8] = spin
        self._ended = self._control[Field.ENDED // 8 :][:2]
        self._lock = threading.Lock()
        self._process = os.getpid()
        signature = ctypes.CFUNCTYPE(None, _ADDRESS, _LONG, _ADDRESS, _ADDRESS, _LONG, _LONG)
        self._run: Callable[..., None] = signature(self._addresses["run"])
        stop = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS)(self._addresses["stop"])
        state = (self._process, self._lock, stop, self._control, self._blocks, compiler)
        self._finalizer = weakref.finalize(self, _join, *state)
        self._start()

    def __repr__(self) -> str:
        state = "" if self._finalizer.alive else ", closed"
        return f"<Pool of {self.num_threads} threads, {self.compiler.isa.name}{state}>"

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def thread_ids(self) -> list[int]:
        """The system's ids of the workers, the caller's not among them."""
        while not self._blocks[1:, 3].all():  # each writes its own as it starts
            os.sched_yield()
        return [int(thread) for thread in self._blocks[1:, 3]]

    @property
    def num_active(self) -> int:
        """Workers that the next task runs on."""
        return self.num_threads if self._contention is None else self._contention.num_active

    def address(self, symbol: str) -> int:
        """Address of one of the runtime's own functions."""
        return self._addresses[symbol]

    def run(
        self, task: int, argument: int = 0, counters: int = 0, num_counter_words: int = 0
    ) -> None:
        """Run the task at address `task` on every active worker and wait for all of them.

        The 64-bit words at `counters` are set to 0 before the first worker begins. Other threads
        that call this wait their turn; the interpreter's lock is free meanwhile. Raises
        `RuntimeFault`.
        """
        if os.getpid() != self._process:
            raise RuntimeFault(
                f"this pool's threads live in process {self._process}, not in its fork "
                f"{os.getpid()}: create the pool after forking, or start processes by spawn"
            )
        with self._lock:
            if not self._finalizer.alive:
                raise RuntimeFault("this pool is closed: create another")
            if self._contention is not None:
                self._contention.begin(time.monotonic())
            active = self.num_active
            self._run(self.control_address, task, argument, counters, num_counter_words, active)
            now, (seconds, nanoseconds) = time.monotonic(), self._ended.tolist()
            self.held_up_seconds = max(now - seconds - nanoseconds * 1e-9, 0.0)
            if self._contention is not None:
                before, self._cycles = self._cycles, self._waited_and_ran()
                waited, ran = (now - then for now, then in zip(self._cycles, before, strict=True))
                self._contention.observe(waited, ran, now)

    def _waited_and_ran(self) -> tuple[int, int]:
        return int(self._control[Field.WAITED // 8]), int(self._control[Field.RAN // 8])

    @contextmanager
    def pinned(self, cpus: Sequence[int]) -> Generator[None]:
        """Keep each worker on a processor of its own inside the block, the caller on the first.

        For measurements: elsewhere the scheduler knows better what else is running.
        """
        threads = [0, *self.thread_ids]
        before = os.sched_getaffinity(0)
        try:
            for thread, cpu in zip(threads, cpus, strict=False):
                _set_affinity(thread, {cpu})
            yield
        finally:
            for thread in threads:
                _set_affinity(thread, before)

    def close(self) -> None:
        """Let the threads end and join them; closing twice is harmless."""
        self._finalizer()

    def _start(self) -> None:
        signature = ctypes.CFUNCTYPE(ctypes.c_int32, _ADDRESS, _ADDRESS, _LONG)
        start = signature(self._addresses["start"])
        with _signals_blocked():
            error = start(self.control_address, self._blocks.ctypes.data, self.num_threads)
        if error:
            failed = int(self._control[Field.STARTED // 8]) + 1
            self.close()
            raise RuntimeFault(
                f"cannot start worker {failed} of {self.num_threads}: pthread_create says "
                f"{os.strerror(error)}; ask for fewer threads, or raise the limits on processes "
                "and memory (ulimit -u, -v; pids.max of the container)"
            )


@contextmanager
def _signals_blocked() -> Generator[None]:
    """Threads made inside leave signals to Python's own threads."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _set_affinity(thread: int, cpus: set[int]) -> None:
    # Where a sandbox forbids it, measurements are only less steady.
    with suppress(OSError):
        os.sched_setaffinity(thread, cpus)


def _join(
    process: int,
    lock: threading.Lock,
    stop: Callable[..., None],
    control: np.ndarray[Any, Any],
    blocks: np.ndarray[Any, Any],
    compiler: Compiler,
) -> None:
    """End a pool's threads; in a forked child there are none. Holds the code they run."""
    if os.getpid() == process:
        with lock:
            stop(control.ctypes.data, blocks.ctypes.data)
    del compiler


def _idle_counter() -> Callable[[], float | None]:
    return idle_seconds if thread_plan().quota is None else lambda: None


def idle_seconds() -> float | None:
    """For how long the processors that this process may use had nothing to do so far, in all.

    As Linux counts it, waits for a disk included; None where it does not.
    """
    try:
        return idle_of(_contents(b"/proc/stat", _MOST_BYTES), os.sched_getaffinity(os.getpid()))
    except OSError:
        return None


def idle_of(stat: bytes, cpus: Collection[int]) -> float | None:
    """Seconds without work of some processors by what /proc/stat holds; None if it lacks one."""
    ticks: dict[int, int] = {}
    try:
        for line in stat.splitlines():
            name, *counts = line.split()
            if name[:3] == b"cpu" and name[3:].isdigit():
                ticks[int(name[3:])] = int(counts[3]) + int(counts[4])
        return sum(ticks[cpu] for cpu in cpus) / os.sysconf("SC_CLK_TCK")
    except (ValueError, IndexError, KeyError):
        return None


def delay_seconds(blocks: NDArray[np.int64]) -> float | None:
    """What the caller and the workers of `blocks` waited for a processor so far.

    As Linux counts it; None where it does not, or before all workers began.
    """
    total = 0
    for thread in (threading.get_native_id(), *map(int, blocks[1:, 3])):
        try:
            total += int(_contents(b"/proc/self/task/%d/schedstat" % thread).split()[1])
        except (OSError, ValueError, IndexError):
            return None
    return total * 1e-9


def _contents(path: bytes, most: int = 256) -> bytes:
    """The first bytes of a file in memory, read without giving up the interpreter's lock.

    Beside a busy thread of Python each call that gives it up waits 5 ms to have it back.
    """
    file = _LIBC.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if file < 0:
        raise OSError(f"cannot open {os.fsdecode(path)}")
    contents = ctypes.create_string_buffer(most)
    try:
        size = _LIBC.read(file, contents, most)
    finally:
        _LIBC.close(file)
    if size < 0:
        raise OSError(f"cannot read {os.fsdecode(path)}")
    return contents.raw[:size]
