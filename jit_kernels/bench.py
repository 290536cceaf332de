"""What this machine can do at most: bytes read and multiply-adds a second, by compiled code.

Every speed of the project is reported against these two figures, so they are taken as the best of
many short runs: another process that holds a core for a moment spoils a long run, not all short
ones. Knows nothing of the kernels that are held against them.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from jit_kernels.compiler import Compiler, default_compiler
from jit_kernels.dsl import (
    Array,
    Value,
    Variable,
    VectorIndex,
    broadcast,
    claimed,
    fma,
    index,
    loop,
    zeros,
)
from jit_kernels.isa import Isa
from jit_kernels.kernel import kernel, worker
from jit_kernels.runtime import CLAIM_COUNTER, Operation, Pool, Program, aligned
from jit_kernels.runtime.topology import physical_cores, read_text
from jit_kernels.types import F32, I32, I64

__all__ = ["Roof", "RoofMeter", "fma_chains", "measure_roof", "read_chunks", "stream_bytes"]

_MIB = 1 << 20
_LINE_BYTES = 64
_CHUNK_BYTES = _MIB  # smaller ones break the prefetcher's runs
_SLICE_BYTES = 32 * _MIB  # of one timed run: 1 ms or so, less than a scheduler's time slice
_FEWEST_RUNS = 5
_SLICES_IN_READING = 3
_SHORT_SPIN = 1000  # pauses
_FMA_RUN_SECONDS = 3e-4
_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Roof:
    """Limits of `threads` threads with the instructions of `isa`; GB and GFLOP are 10**9.

    read_bandwidth_gbs: the best short run.  sustained_bandwidth_gbs: the median run, which is
    what a longer run can hope for while others use the same memory.
    """

    read_bandwidth_gbs: float
    sustained_bandwidth_gbs: float
    fma_peak_gflops: float
    threads: int
    isa: str


@kernel
def read_chunks(
    data: Array[I32],
    num_chunks: Value[I64],
    out: Array[I32],
    counter: Array[I64],
    *,
    chunk_bytes: int,
    streams: int,
    prefetch_bytes: int,
) -> None:
    """Exclusive-or of everything in `data`, per worker and lane; a chunk is read in `streams`."""
    sums = [Variable(zeros(I32)) for _ in range(2)]
    stream_elements = chunk_bytes // 4 // streams
    for chunk in claimed(counter, num_chunks):
        for position in loop(0, stream_elements, 4 * 16):
            for stream in range(streams):
                lines = data.offset((chunk * streams + stream) * stream_elements + position)
                for line in range(4):
                    total = sums[line % 2]
                    total.set(total.get() ^ lines.vector(16 * line))
                    if prefetch_bytes:
                        lines.prefetch(prefetch_bytes + _LINE_BYTES * line)
    out.offset(worker().index * 16)[VectorIndex(index(0))] = sums[0].get() ^ sums[1].get()


@kernel
def fma_chains(
    iterations: Value[I64], operands: Array[F32], out: Array[F32], *, lanes: int, chains: int
) -> None:
    """Independent chains x = a * x + b in registers, the same number for every worker."""
    scale, shift = broadcast(operands[0], lanes), broadcast(operands[1], lanes)
    values = [Variable(zeros(F32, lanes)) for _ in range(chains)]
    for _ in loop(iterations):
        for _ in range(_UNROLL):
            for value in values:
                value.set(fma(value.get(), scale, shift))
    total = values[0].get()
    for value in values[1:]:
        total = total + value.get()
    mine = out.offset(worker().index * 16)
    for lane in range(lanes):
        mine[lane] = total.lane(lane)


class RoofMeter:
    """Measures the limits of `threads` threads, again and again: they drift on a shared machine.

    Touches at least 256 MB where the machine has them: read a process's peak memory before.
    """

    def __init__(self, threads: int, compiler: Compiler | None = None) -> None:
        self._threads = threads
        self._compiler = compiler or default_compiler()
        self._cpus = [core[0] for core in physical_cores(os.sched_getaffinity(0))]
        self._data = aligned(stream_bytes() // 4, np.int32, huge_pages=True)  # 4 KB pages cost 5 %
        self._data[:] = 1  # pages that were never written are all the same page

    def bandwidth(self, seconds: float = 0.5) -> tuple[float, float]:
        """GB a second, at best and sustained; takes about `seconds`."""
        with self._pool() as pool:
            best, sustained = _read_bandwidth(pool, self._data, seconds)
        return best / 1e9, sustained / 1e9

    def fma_peak(self, seconds: float = 0.5) -> float:
        """GFLOP a second; takes about `seconds`."""
        with self._pool() as pool:
            return _fma_peak(pool, seconds) / 1e9

    @contextmanager
    def readings(self) -> Generator[Callable[[], float]]:
        """A function that reads for some milliseconds and gives GB a second.

        For the pauses of other work, which is then held against what memory gave meanwhile.
        """
        # Hardly patient: between two readings the processors belong to that other work.
        with Pool(self._threads, self._compiler, spin=_SHORT_SPIN) as pool:
            patterns = _reading_programs(pool, self._data)
            times = [median(_run_times(pattern, 0.02)) for pattern in patterns]
            runs = itertools.cycle(patterns[times.index(min(times))])

            def read() -> float:
                next(runs)()  # wakes the workers
                begin = time.perf_counter()
                for _ in range(_SLICES_IN_READING):
                    next(runs)()
                return _SLICES_IN_READING * _SLICE_BYTES / (time.perf_counter() - begin) / 1e9

            yield read

    @contextmanager
    def _pool(self) -> Generator[Pool]:
        pins = self._cpus if self._threads <= len(self._cpus) else []
        with Pool(self._threads, self._compiler) as pool, pool.pinned(pins):
            yield pool


def measure_roof(threads: int, compiler: Compiler | None = None, *, seconds: float = 1.0) -> Roof:
    """Measure the limits of `threads` threads once; takes about `seconds`. See `RoofMeter`."""
    chosen = compiler or default_compiler()
    meter = RoofMeter(threads, chosen)
    best, sustained = meter.bandwidth(seconds / 2)
    return Roof(best, sustained, meter.fma_peak(seconds / 2), threads, chosen.isa.name)


def stream_bytes(read: Callable[[str], str | None] = read_text) -> int:
    """Size of a buffer that no cache can hold, in whole slices, within the memory there is."""
    cache = re.match(r"(\d+)K", read("/sys/devices/system/cpu/cpu0/cache/index3/size") or "")
    available = re.search(r"MemAvailable:\s+(\d+) kB", read("/proc/meminfo") or "")
    wanted = max(256 * _MIB, 8 * 1024 * int(cache[1]) if cache else 0)
    if available:
        wanted = min(wanted, 1024 * int(available[1]) // 4)
    return max(2, min(wanted, 1024 * _MIB) // _SLICE_BYTES) * _SLICE_BYTES


def _read_bandwidth(
    pool: Pool, data: np.ndarray[Any, np.dtype[np.int32]], seconds: float
) -> tuple[float, float]:
    """Bytes a second, at best and in the median of the best pattern."""
    patterns = _reading_programs(pool, data)
    times = [_run_times(pattern, seconds / len(patterns)) for pattern in patterns]
    best, middle = min(map(min, times)), min(map(median, times))
    return _SLICE_BYTES / best, _SLICE_BYTES / middle


def _reading_programs(
    pool: Pool, data: np.ndarray[Any, np.dtype[np.int32]]
) -> list[list[Callable[[], None]]]:
    """Runs that each read another slice, by pattern: which is best differs between processors.

    A slice comes round again only after all others were read: by then no cache has it.
    """
    out = aligned(16 * pool.num_threads, np.int32)
    chunks, elements = _SLICE_BYTES // _CHUNK_BYTES, _SLICE_BYTES // 4
    slices = [data[begin : begin + elements] for begin in range(0, data.size, elements)]
    patterns: list[list[Callable[[], None]]] = []
    for streams, prefetch_bytes in ((1, 1024), (1, 4096), (2, 0), (2, 1024), (4, 1024)):
        code = read_chunks.specialise(
            chunk_bytes=_CHUNK_BYTES, streams=streams, prefetch_bytes=prefetch_bytes
        ).compile(pool.compiler)
        arguments = [(part, chunks, out, CLAIM_COUNTER) for part in slices]
        patterns.append([Program(pool, [Operation(code, a)]).run for a in arguments])
    return patterns


def _fma_peak(pool: Pool, seconds: float) -> float:
    """Floating-point operations a second, a multiply-add being two."""
    isa = pool.compiler.isa
    lanes, chains = isa.float_lanes, _num_chains(isa)
    code = fma_chains.specialise(lanes=lanes, chains=chains).compile(pool.compiler)
    out = aligned(16 * pool.num_threads, np.float32)
    operands = np.array([0.5, 1.0], np.float32)
    # Calibrated on this thread alone: it depends on no other being scheduled at the same time.
    iterations = 64
    while _best_seconds([lambda n=iterations: code(n, operands, out)], 0.0) < _FMA_RUN_SECONDS:
        iterations *= 2
    program = Program(pool, [Operation(code, (iterations, operands, out))])
    flops = 2 * lanes * chains * _UNROLL * iterations * pool.num_threads
    return flops / _best_seconds([program.run], seconds)


def _num_chains(isa: Isa) -> int:
    """Enough to hide the latency of two units, few enough to stay in registers."""
    return 10 if isa.num_registers == 16 else 20


def _best_seconds(runs: Sequence[Callable[[], None]], seconds: float) -> float:
    """The shortest of all, run in turn for `seconds` and at least `_FEWEST_RUNS` times."""
    return min(_run_times(runs, seconds))


def _run_times(runs: Sequence[Callable[[], None]], seconds: float) -> list[float]:
    """Seconds of each run, in turn for `seconds` and at least `_FEWEST_RUNS` times."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _FEWEST_RUNS or time.perf_counter() < end:
        run = runs[len(times) % len(runs)]
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times
