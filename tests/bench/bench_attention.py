"""Attention against this machine's limits, measured in the same run.

    python -m tests.bench.bench_attention [--isa avx2] [--threads 2] [--only decode,prefill]
        [--kv fp32,bf16,int8] [--contexts 2048,8192,32768] [--requests 1,4]

Decoding is held against the read bandwidth: one row of a request, split over its
segments as the engine does, and several rows that are not split. Prefill is held against the
float32 FMA peak: causal, one request and one kv head, so that a run is shorter than a scheduler's
time slice where that can be, and counting only the products that a row may see.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from jit_kernels.compiler.jit import compiler_for
from jit_kernels.isa import detect, object_cache_directory, record
from jit_kernels.kernels.attention import (
    attention,
    partial_floats,
    query_tile,
    workspace_floats,
)
from jit_kernels.kernels.attention_items import ITEM_WORDS, SEGMENT_SIZE
from jit_kernels.kernels.attention_merge import SPLIT_WORDS, attention_merge
from jit_kernels.kv_layout import PAGE_SIZE, block_bytes
from jit_kernels.reference import kv_cache
from jit_kernels.reference.kv_cache import stored_keys, stored_values
from jit_kernels.runtime import CLAIM_COUNTER, Operation, Pool, Program, aligned
from tests.bench.bench_linear import Task, best_rates, peak_task, read_task, say
from tests.kernels.attention_cases import WHOLE, Item, words

_READ_BYTES = 256 << 20  # beyond the last-level cache, as the keys of many layers are
_RUN_BYTES = 8 << 20


class Shape:
    """Heads of a layer and what its operands need."""

    def __init__(
        self, head_dim: int, heads_per_kv: int, num_kv_heads: int, kv_format: str = "fp32"
    ) -> None:
        self.kv_format = kv_format
        self.head_dim, self.heads_per_kv = head_dim, heads_per_kv
        self.num_kv_heads = num_kv_heads
        self.num_heads = heads_per_kv * num_kv_heads
        self.width = self.num_heads * head_dim
        self.page_bytes = num_kv_heads * block_bytes(kv_format, head_dim)

    def __str__(self) -> str:
        return f"D {self.head_dim:3} heads {self.num_heads:2}/{self.num_kv_heads} {self.kv_format}"

    def operations(
        self,
        pool: Pool,
        num_rows: int,
        items: Sequence[Item],
        splits: Sequence[tuple[int, int, int]],
        num_pages: int,
        scattered: bool = False,
    ) -> list[Operation]:
        """One layer's attention, and the merge where rows are split; pages of its own."""
        constants = {"head_dim": self.head_dim, "heads_per_kv": self.heads_per_kv}
        rng = np.random.default_rng(0)
        queries, out = (aligned((num_rows, self.width), np.float32) for _ in range(2))
        queries[:] = rng.standard_normal(queries.shape)
        pages = aligned((num_pages, self.page_bytes), np.uint8, huge_pages=True)
        pages[:] = self.page(rng)
        order = rng.permutation(num_pages) if scattered else np.arange(num_pages)
        scratch = -(-workspace_floats(self.head_dim, self.heads_per_kv) // 1024) * 1024
        workspace = aligned((pool.num_threads, scratch), np.float32)
        state = self.num_kv_heads * partial_floats(self.head_dim, self.heads_per_kv)
        partials = aligned((max(1, len(items)), state), np.float32)
        attend = (
            np.array([len(items)]), words(items, ITEM_WORDS), queries, self.width, pages,
            order.astype(np.int32), self.num_kv_heads, out, self.width,
            partials, self.head_dim**-0.5, CLAIM_COUNTER, workspace, scratch,
            0, 0.0, *[np.zeros(1, np.float32)] * 5,
        )  # fmt: skip
        merge = (
            np.array([len(splits)]), words(splits, SPLIT_WORDS), partials, out, self.width,
            self.num_kv_heads, CLAIM_COUNTER, np.zeros(num_rows, np.int32), 0,
        )  # fmt: skip
        attending = attention.specialise(**constants, kv_format=self.kv_format)
        kernels = ((attending, attend), (attention_merge.specialise(**constants), merge))
        return [
            Operation(kernel.compile(pool.compiler), arguments) for kernel, arguments in kernels
        ]

    def page(self, rng: np.random.Generator) -> np.ndarray:
        """A page of 32 random tokens."""
        page = np.zeros((1, self.num_kv_heads, self.page_bytes // self.num_kv_heads), np.uint8)
        shape = (PAGE_SIZE, self.num_kv_heads, self.head_dim)
        keys, values = rng.standard_normal((2, *shape)).astype(np.float32)
        kept = stored_keys(keys, self.kv_format), stored_values(values, self.kv_format)
        kv_cache.append(page, self.kv_format, *kept, np.arange(PAGE_SIZE))
        return page.reshape(-1)


def bench_decode(shape: Shape, context: int, requests: int, pool: Pool, duration: float) -> None:
    """Rows that each read their whole context; a single one is split over its segments."""
    num_pages, num_segments = -(-context // PAGE_SIZE), -(-context // SEGMENT_SIZE)
    if requests == 1:
        items = [(0, 1, context - 1, 0, segment, segment) for segment in range(num_segments)]
        splits = [(0, num_segments, 0)]
    else:
        items = [(row, 1, context - 1, row * num_pages, WHOLE, 0) for row in range(requests)]
        splits = []
    size = shape.page_bytes * context // PAGE_SIZE * requests
    in_run = max(1, _RUN_BYTES // size)
    programs = [
        Program(
            pool,
            [
                operation
                for _ in range(in_run)
                for operation in shape.operations(
                    pool, requests, items, splits, num_pages * requests
                )
            ],
        )
        for _ in range(max(2, _READ_BYTES // (size * in_run)))
    ]
    task = Task(programs, float(size * in_run))
    rate, top = best_rates(task, read_task(pool), duration)
    say(
        f"decode  {shape} rows {requests} context {context}: {rate / 1e9:5.1f} GB/s "
        f"{rate / top:4.0%} of {top / 1e9:5.1f} GB/s"
    )


def bench_prefill(shape: Shape, length: int, pool: Pool, duration: float) -> None:
    """A prompt from position 0."""
    tile = query_tile(shape.heads_per_kv)
    items = [
        (first, min(tile, length - first), first, 0, WHOLE, 0) for first in range(0, length, tile)
    ]
    items.sort(key=lambda item: -item[2])
    operations = shape.operations(pool, length, items, [], length // PAGE_SIZE)
    work = 4.0 * shape.num_heads * shape.head_dim * (length * (length + 1) / 2)
    rate, top = best_rates(Task([Program(pool, operations)], work), peak_task(pool), duration)
    say(
        f"prefill {shape} rows {length}: {rate / 1e9:5.1f} GFLOP/s "
        f"{rate / top:4.0%} of {top / 1e9:5.1f} GFLOP/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default="host")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="decode,prefill")
    parser.add_argument("--kv", default="fp32", help="formats of keys and values")
    parser.add_argument("--contexts", default="2048", help="lengths, for decoding")
    parser.add_argument("--requests", default="1,4", help="rows decoded together; one is split")
    parser.add_argument("--lengths", default="512,2048,8192", help="of prompts")
    parser.add_argument("--seconds", type=float, default=1.0)
    chosen = parser.parse_args()
    isa = detect() if chosen.isa == "host" else record(chosen.isa)
    compiler = compiler_for(isa, object_cache_directory())
    formats = chosen.kv.split(",")
    shapes = [Shape(*heads, each) for heads in ((64, 3, 3), (128, 4, 4)) for each in formats]
    contexts, batches, lengths = (
        [int(each) for each in numbers.split(",")]
        for numbers in (chosen.contexts, chosen.requests, chosen.lengths)
    )
    with Pool(chosen.threads, compiler) as pool:
        say(f"{isa.name} ({isa.cpu}), {chosen.threads} threads")
        for shape in shapes:
            if "decode" in chosen.only:
                for context in contexts:
                    for requests in batches:
                        bench_decode(shape, context, requests, pool, chosen.seconds)
            if "prefill" in chosen.only:
                for length in lengths:
                    one = Shape(shape.head_dim, shape.heads_per_kv, 1, shape.kv_format)
                    bench_prefill(one, length, pool, chosen.seconds)


if __name__ == "__main__":
    main()
