"""Linear kernels against this machine's limits, measured in the same run.

    python -m tests.bench.bench_linear [--isa avx2] [--threads 2] [--only gemv,rows,gemm]

GEMV is held against the read bandwidth, GEMM against the float32 FMA peak. The kernel and its
limit run in turns, each run shorter than a scheduler's time slice, and each figure is the best of
all runs: what the machine gives when nothing else happens to run.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from jit_kernels import panels as packing
from jit_kernels.compiler.jit import compiler_for
from jit_kernels.dsl import Array, Value, Variable, VectorIndex, broadcast, fma, index, loop, zeros
from jit_kernels.isa import detect, object_cache_directory, record
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.linear_blocks import WORKSPACE_BYTES
from jit_kernels.kernels.linear_tiles import row_tile
from jit_kernels.runtime import CLAIM_COUNTER, Argument, Operation, Pool, Program, aligned
from jit_kernels.types import F32, I64, U32
from tests.kernels.linear_cases import Linear, copies_for_workers, random_linear, specialise

_READ_BYTES = 256 << 20  # beyond the last-level cache, as are the weights of a GEMV
_RUN_BYTES = 4 << 20
_READ_AHEAD = 4096
_CHAINS = 6
_PEAK_STEPS = 100_000
_GEMV_SHAPES = ((576, 3072), (1536, 576), (576, 960), (576, 576), (576, 49152))
_GEMM_SHAPES = ((576, 3072), (1536, 576), (576, 960), (576, 576))


@kernel
def fma_peak(steps: Value[I64], out: Array[F32]) -> None:
    """Independent fma chains in registers: 2 * 16 * chains operations a step."""
    sums = [Variable(broadcast(out[chain])) for chain in range(_CHAINS)]
    factor = broadcast(out[32])
    for _ in loop(steps):
        for total in sums:
            total.set(fma(total.get(), factor, factor))
    for chain, total in enumerate(sums):
        place = worker().index * 1024 + 64 + chain * 16
        out[VectorIndex(place)] = total.get()


@kernel
def read_memory(words: Array[U32], count: Value[I64], out: Array[U32]) -> None:
    """Read every 32-bit word once."""
    folded = [Variable(zeros(U32)) for _ in range(4)]
    begin, end = worker().share(count // 64)
    for block in loop(begin, end):
        vector = words + block * 64
        for position, total in enumerate(folded):
            (vector + position * 16).prefetch(_READ_AHEAD)
            total.set(total.get() ^ vector.vector(position * 16))
    for position, total in enumerate(folded):
        out[VectorIndex(worker().index * 64 + index(position * 16))] = total.get()


@dataclass(frozen=True)
class Task:
    """Programs that do the same work on different memory, run in rotation."""

    programs: list[Program]
    work: float

    def time(self, turn: int) -> float:
        """Seconds of one run; the thread's own where there is one, which others cannot take."""
        program = self.programs[turn % len(self.programs)]
        clock = time.thread_time if program.pool.num_threads == 1 else time.perf_counter
        begin = clock()
        program.run()
        return clock() - begin


def peak_task(pool: Pool) -> Task:
    """All workers at the FMA peak; work in operations."""
    code = fma_peak.specialise().compile(pool.compiler)
    program = Program(pool, [Operation(code, (_PEAK_STEPS, aligned(65536, np.float32)))])
    return Task([program], pool.num_threads * _PEAK_STEPS * _CHAINS * 32.0)


def read_task(pool: Pool) -> Task:
    """All workers reading memory; work in bytes."""
    code = read_memory.specialise().compile(pool.compiler)
    words, out = aligned(_READ_BYTES // 4, np.int32), aligned(65536, np.int32)
    words[:] = 1
    parts = np.split(words, _READ_BYTES // _RUN_BYTES)
    return Task(
        [Program(pool, [Operation(code, (part, part.size, out))]) for part in parts],
        float(_RUN_BYTES),
    )


def best_rates(task: Task, limit: Task, duration: float) -> tuple[float, float]:
    """Best rates of a task and its limit, run in turns for `duration` seconds."""
    bests, turn, end = [float("inf")] * 2, 0, time.perf_counter() + duration
    while time.perf_counter() < end or turn < 4 * len(task.programs):
        for which, each in enumerate((task, limit)):
            bests[which] = min(bests[which], each.time(turn))
        turn += 1
    return task.work / bests[0], limit.work / bests[1]


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array on pages of its own."""
    copy = aligned(array.shape, array.dtype.type, huge_pages=True)
    copy[...] = array
    return copy


def operations_of(case: Linear, pool: Pool, copies: int) -> list[Operation]:
    """One operation for each of `copies` copies of the weights."""
    code = specialise(case, pool.compiler)
    tile, workers = row_tile(pool.compiler.isa), pool.num_threads
    prepared, copy_bytes, scales_bytes = copies_for_workers(case, tile, workers)
    width = case.num_panels * 16
    out = aligned((case.rows, width), np.float32)
    workspace = aligned(workers * WORKSPACE_BYTES, np.uint8)
    before: tuple[Argument, ...] = (np.array([case.rows]), copied(prepared.words))
    before += (copied(prepared.scales), copy_bytes, scales_bytes) if case.grouped else (copy_bytes,)
    after: tuple[Argument, ...] = (out, out, width, out, width, case.k, case.num_panels)
    after += (case.groups_per_scale,) if case.grouped else ()
    after += (CLAIM_COUNTER, workspace, WORKSPACE_BYTES)
    after += (np.zeros(0, np.int32), np.zeros(0, np.float32)) if case.grouped else ()
    operations: list[Operation] = []
    for _ in range(copies):
        weights = [copied(case.packed())]
        if case.grouped:
            weights += [copied(packing.pack_groups(a)) for a in (case.scale, case.minimum)]
        operations.append(Operation(code, (*before, *weights, *after)))
    return operations


def weight_bytes(case: Linear) -> int:
    """Bytes of weights that one product must read."""
    factors = case.scale.nbytes + case.minimum.nbytes if case.grouped else 0
    return case.packed().nbytes + factors


def bench_gemv(kind: str, shape: tuple[int, int], rows: int, pool: Pool, duration: float) -> None:
    case = random_linear(kind, rows, *shape)
    size = weight_bytes(case)
    in_run = max(1, _RUN_BYTES // size)
    operations = operations_of(case, pool, max(2, _READ_BYTES // (size * in_run)) * in_run)
    parts = [operations[i : i + in_run] for i in range(0, len(operations), in_run)]
    task = Task([Program(pool, part) for part in parts], float(in_run * size))
    rate, top = best_rates(task, read_task(pool), duration)
    flops = 2 * rows * shape[0] * shape[1] / size * rate
    say(
        f"{kind:5} rows {rows:3} {shape[0]:5}x{shape[1]:<6} {rate / 1e9:6.1f} GB/s "
        f"{rate / top:4.0%} of {top / 1e9:5.1f} GB/s  [{flops / 1e9:4.0f} GFLOP/s]",
    )


def bench_gemm(kind: str, shape: tuple[int, int], rows: int, pool: Pool, duration: float) -> None:
    case = random_linear(kind, rows, *shape)
    task = Task([Program(pool, operations_of(case, pool, 1))], 2.0 * rows * shape[0] * shape[1])
    rate, top = best_rates(task, peak_task(pool), duration)
    say(
        f"{kind:5} rows {rows:3} {shape[0]:5}x{shape[1]:<6} {rate / 1e9:6.1f} GFLOP/s "
        f"{rate / top:4.0%} of {top / 1e9:5.1f} GFLOP/s",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default="host")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="gemv,rows,gemm")
    parser.add_argument("--kind", default="u8,bf16,f32")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rows", default="512")
    chosen = parser.parse_args()
    isa = detect() if chosen.isa == "host" else record(chosen.isa)
    compiler = compiler_for(isa, object_cache_directory())
    with Pool(chosen.threads, compiler) as pool:
        say(f"{isa.name} ({isa.cpu}), {chosen.threads} threads, row_tile {row_tile(isa)}")
        for kind in chosen.kind.split(","):
            if "gemv" in chosen.only:
                for shape in _GEMV_SHAPES:
                    bench_gemv(kind, shape, 1, pool, chosen.seconds)
            if "rows" in chosen.only:
                for rows in (1, 2, 4, 8, 16):
                    bench_gemv(kind, _GEMV_SHAPES[0], rows, pool, chosen.seconds)
            if "gemm" in chosen.only:
                for shape in _GEMM_SHAPES:
                    bench_gemm(kind, shape, int(chosen.rows), pool, chosen.seconds)


if __name__ == "__main__":
    main()
