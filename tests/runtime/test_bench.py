from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jit_kernels.bench import fma_chains, measure_roof, read_chunks, stream_bytes
from jit_kernels.runtime import CLAIM_COUNTER, Operation, Pool, Program
from tests.runtime.compiled import compiler

MIB = 1 << 20
CHUNK = 4096


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize(("streams", "prefetch_bytes"), [(1, 0), (1, 1024), (2, 0), (2, 512)])
def test_the_bandwidth_kernel_reads_every_byte_once(
    num_threads: int, streams: int, prefetch_bytes: int
) -> None:
    data = np.random.default_rng(3).integers(0, 2**31, (7, CHUNK // 64, 16), np.int32)
    out = np.zeros((num_threads, 16), np.int32)
    code = read_chunks.specialise(
        chunk_bytes=CHUNK, streams=streams, prefetch_bytes=prefetch_bytes
    ).compile(compiler())
    with Pool(num_threads, compiler()) as pool:
        Program(pool, [Operation(code, (data, len(data), out, CLAIM_COUNTER))]).run()

    expected = np.bitwise_xor.reduce(data, axis=(0, 1))
    assert np.array_equal(np.bitwise_xor.reduce(out, axis=0), expected)


def test_the_peak_kernel_computes_every_multiply_add() -> None:
    iterations, chains, lanes = 2, 10, 8
    out = np.zeros(16, np.float32)
    code = fma_chains.specialise(lanes=lanes, chains=chains).compile(compiler())
    code(iterations, np.array([0.5, 1.0], np.float32), out)

    # x = x / 2 + 1 from 0, four times an iteration, is 2 - 2**(1 - n) after n times: exact.
    each = 2 - 2.0 ** (1 - 4 * iterations)
    assert out.tolist() == [chains * each] * lanes + [0.0] * 8


def test_a_roof_has_both_limits() -> None:
    roof = measure_roof(2, compiler(), seconds=0.05)

    assert (roof.threads, roof.isa) == (2, compiler().isa.name)
    # Between a tenth of the slowest machine in use and far above the fastest.
    assert 0.3 < roof.read_bandwidth_gbs < 5_000
    assert 0.1 < roof.fma_peak_gflops < 50_000


def machine(cache: str | None, available_kib: int | None) -> Callable[[str], str | None]:
    meminfo = None if available_kib is None else f"MemAvailable:   {available_kib} kB\n"
    return {
        "/sys/devices/system/cpu/cpu0/cache/index3/size": cache,
        "/proc/meminfo": meminfo,
    }.get


@pytest.mark.parametrize(
    ("cache", "available_mib", "expected_mib"),
    [
        (None, None, 256),
        ("8192K\n", 16_000, 256),
        ("65536K\n", 16_000, 512),
        ("1048576K\n", 64_000, 1024),
        ("65536K\n", 1000, 224),
        ("65536K\n", 10, 64),
    ],
)
def test_the_buffer_exceeds_the_cache_within_the_memory_there_is(
    cache: str | None, available_mib: int | None, expected_mib: int
) -> None:
    available_kib = None if available_mib is None else available_mib * 1024

    assert stream_bytes(machine(cache, available_kib)) == expected_mib * MIB
