"""Operands of attention for tests and benchmarks: requests scattered over pages, lists of items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jit_kernels.isa import AVX2, Isa
from jit_kernels.kernel import Kernel
from jit_kernels.kernels.attention import (
    attention,
    partial_floats,
    query_tile,
    workspace_floats,
)
from jit_kernels.kernels.attention_items import ITEM_WORDS, SEGMENT_SIZE
from jit_kernels.kernels.attention_key_bias import segment_angles
from jit_kernels.kernels.attention_merge import SPLIT_WORDS, attention_merge
from jit_kernels.kv_layout import PAGE_SIZE, block_bytes
from jit_kernels.reference import attention as reference
from jit_kernels.reference import kv_cache
from jit_kernels.reference.kv_cache import stored_keys, stored_values
from jit_kernels.runtime import CLAIM_COUNTER, Argument, Operation, Pool, Program
from tests.kernels.machine_code import compiled, run

__all__ = [
    "WHOLE",
    "Case",
    "Item",
    "Options",
    "attend",
    "attend_with_threads",
    "fill_pages",
    "random_case",
    "split_items",
    "straddling",
    "tiled_items",
    "words",
]

Array = np.ndarray[Any, Any]
Place = Callable[[Array], Array]
Operands = tuple[Argument, ...]
Item = tuple[int, int, int, int, int, int]
Split = tuple[int, int, int]
WHOLE = -1


@dataclass(frozen=True, slots=True)
class Options:
    """What an architecture adds to attention."""

    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    scale: float | None = None
    kv_format: str = "fp32"
    key_bias: float = 0
    """Size of a bias that keys are kept without."""


NONE = Options()


@dataclass(frozen=True, slots=True)
class Case:
    """Requests whose last rows ask; rows, and pages in `table`, lie one request after the other.

    `keys[i]`, `values[i]` are request i's [context, KV, D]; `first_pages[i]` is where its pages
    begin in `table`; `pages` is [pages, KV, block bytes].
    """

    queries: Array
    keys: list[Array]
    values: list[Array]
    rows: list[int]
    pages: Array
    table: Array
    first_pages: list[int]
    options: Options = NONE

    @property
    def head_dim(self) -> int:
        return self.queries.shape[2]

    @property
    def num_kv_heads(self) -> int:
        return self.keys[0].shape[1]

    @property
    def heads_per_kv(self) -> int:
        return self.queries.shape[1] // self.num_kv_heads

    @property
    def scoring(self) -> reference.Scoring:
        slopes = reference.alibi_slopes(self.queries.shape[1]) if self.options.alibi else None
        scale = self.options.scale or float(np.float32(self.head_dim**-0.5))
        return reference.Scoring(scale, self.options.softcap, slopes, self.options.window)

    def constants(self) -> dict[str, int]:
        """What attention is specialised by."""
        scoring = self.scoring
        return {
            "head_dim": self.head_dim,
            "heads_per_kv": self.heads_per_kv,
            "windowed": scoring.window is not None,
            "softcapped": scoring.softcap is not None,
            "biased": scoring.slopes is not None,
            "kv_format": self.options.kv_format,
            "key_biased": self.key_bias is not None,
        }

    @property
    def key_bias(self) -> reference.KeyBias | None:
        """What keys were kept without."""
        if not self.options.key_bias:
            return None
        rng = np.random.default_rng(9)
        bias = self.options.key_bias * rng.standard_normal((self.num_kv_heads, self.head_dim))
        frequencies = 0.3 ** np.arange(self.head_dim // 2)
        angle = np.outer(np.arange(max(map(len, self.keys))), frequencies)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        angles = segment_angles(cos, sin)
        return reference.KeyBias(bias.astype(np.float32), cos, sin, angles)

    def first_row(self, request: int) -> int:
        return sum(self.rows[:request])

    def start(self, request: int) -> int:
        """Position of a request's first row."""
        return len(self.keys[request]) - self.rows[request]

    def expected(self) -> Array:
        """The bits that the kernel owes, [R, H, D]."""
        parts: list[Array] = []
        for request, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            first, count = self.first_row(request), self.rows[request]
            positions = np.arange(self.start(request), len(keys))
            queries = self.queries[first : first + count]
            kv_format = self.options.kv_format
            kept = stored_keys(keys, kv_format), stored_values(values, kv_format)
            parts.append(reference.attend(queries, *kept, positions, self.scoring, self.key_bias))
        return np.concatenate(parts)


def random_case(
    head_dim: int,
    heads_per_kv: int,
    contexts: Sequence[int],
    rows: Sequence[int],
    *,
    num_kv_heads: int = 2,
    seed: int = 0,
    options: Options = NONE,
) -> Case:
    """Random requests; pages, and parts of pages, that hold no token are filled with 0xFF."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    counts = [-(-context // PAGE_SIZE) for context in contexts]
    table = rng.permutation(sum(counts) + 3)[: sum(counts)].astype(np.int32)
    shape = (sum(counts) + 3, num_kv_heads, block_bytes(options.kv_format, head_dim))
    pages = np.full(shape, 0xFF, np.uint8)
    firsts = [sum(counts[:request]) for request in range(len(counts))]
    keys = [normal(context, num_kv_heads, head_dim) for context in contexts]
    values = [normal(context, num_kv_heads, head_dim) for context in contexts]
    queries = normal(sum(rows), num_kv_heads * heads_per_kv, head_dim)
    case = Case(queries, keys, values, list(rows), pages, table, firsts, options)
    for request in range(len(contexts)):
        fill_pages(case, request)
    return case


def fill_pages(case: Case, request: int) -> None:
    """Write a request's keys and values to its pages."""
    tokens = np.arange(len(case.keys[request]))
    physical = case.table[case.first_pages[request] + tokens // PAGE_SIZE].astype(np.int64)
    slots = physical * PAGE_SIZE + tokens % PAGE_SIZE
    kv_format = case.options.kv_format
    keys = stored_keys(case.keys[request], kv_format)
    values = stored_values(case.values[request], kv_format)
    kv_cache.append(case.pages, kv_format, keys, values, slots)


def tiled_items(case: Case, most: int | None = None) -> list[Item]:
    """Every row once, in tiles of at most `most` rows."""
    most = min(most or query_tile(case.heads_per_kv), query_tile(case.heads_per_kv))
    items: list[Item] = []
    for request, count in enumerate(case.rows):
        for first in range(0, count, most):
            row, position = case.first_row(request) + first, case.start(request) + first
            size = min(most, count - first)
            items.append((row, size, position, case.first_pages[request], WHOLE, 0))
    return items


def split_items(case: Case) -> tuple[list[Item], list[Split]]:
    """Every row by itself, one item a segment; and how to merge them."""
    items: list[Item] = []
    splits: list[Split] = []
    for request, count in enumerate(case.rows):
        for offset in range(count):
            row, position = case.first_row(request) + offset, case.start(request) + offset
            num_segments = position // SEGMENT_SIZE + 1
            splits.append((row, num_segments, len(items)))
            for segment in range(num_segments):
                table = case.first_pages[request]
                items.append((row, 1, position, table, segment, len(items)))
    return items, splits


def words(rows: Sequence[tuple[int, ...]], width: int) -> Array:
    """Rows of int64 words, each filled up with zeros."""
    return np.array([(*row, *[0] * (width - len(row))) for row in rows], np.int64).reshape(
        len(rows), width
    )


def attend(
    case: Case,
    isa: Isa,
    items: Sequence[Item],
    splits: Sequence[Split] = (),
    *,
    num_workers: int = 1,
    place: Place = lambda array: array,
) -> Array:
    """Run every worker's part, then the merge; [R, H, D]. `place` puts operands into memory."""
    attention_operands, merge_operands, out = _operands(case, items, splits, num_workers, place)
    for kernel, operands in ((attention, attention_operands), (attention_merge, merge_operands)):
        counted = [np.zeros(1, np.int64) if each is CLAIM_COUNTER else each for each in operands]
        run(compiled(kernel, isa, **_known(kernel, case)), counted, num_workers)
    return out.reshape(case.queries.shape)


def attend_with_threads(
    case: Case,
    items: Sequence[Item],
    splits: Sequence[Split],
    num_threads: int,
    chaos_seed: int,
) -> Array:
    """The same by a pool of threads, each late by a random time."""
    attention_operands, merge_operands, out = _operands(case, items, splits, num_threads)
    operations = [
        Operation(compiled(kernel, AVX2, **_known(kernel, case)), operands)
        for kernel, operands in (
            (attention, attention_operands),
            (attention_merge, merge_operands),
        )
    ]
    with Pool(num_threads, operations[0].kernel.compiler, spin=0) as pool:
        Program(pool, operations, chaos_seed=chaos_seed).run()
    return out.reshape(case.queries.shape)


def _known(kernel: Kernel, case: Case) -> dict[str, int]:
    return {name: value for name, value in case.constants().items() if name in kernel.constants}


def _operands(
    case: Case,
    items: Sequence[Item],
    splits: Sequence[Split],
    num_workers: int,
    place: Place = lambda array: array,
) -> tuple[Operands, Operands, Array]:
    """Operands of attention and of the merge, and what they write."""
    num_rows, num_heads, head_dim = case.queries.shape
    scoring = case.scoring
    positions = [
        np.arange(case.start(request), len(keys)) for request, keys in enumerate(case.keys)
    ]
    bias = [np.zeros(1, np.float32)] * 4
    if case.key_bias is not None:
        bias = [case.key_bias.bias, case.key_bias.cos, case.key_bias.sin, case.key_bias.angles]
    slopes = np.zeros(1, np.float32) if scoring.slopes is None else scoring.slopes
    width = num_heads * head_dim
    scratch = workspace_floats(head_dim, case.heads_per_kv)
    state = partial_floats(head_dim, case.heads_per_kv)
    out = place(np.full((num_rows, width), -1, np.float32))
    partials = place(np.full((len(items) * case.num_kv_heads, state), np.nan, np.float32))
    first = (
        place(np.array([len(items)])), place(words(items, ITEM_WORDS)),
        place(case.queries.reshape(num_rows, width)), width, place(case.pages), place(case.table),
        case.num_kv_heads, out, width, partials, scoring.scale, CLAIM_COUNTER,
        place(np.full((num_workers, scratch), np.nan, np.float32)), scratch,
        scoring.window or 0, scoring.softcap or 0.0, place(slopes),
        *[place(each) for each in bias],
    )  # fmt: skip
    second = (
        place(np.array([len(splits)])), place(words(splits, SPLIT_WORDS)), partials, out, width,
        case.num_kv_heads, CLAIM_COUNTER, place(np.concatenate(positions).astype(np.int32)),
        scoring.window or 0,
    )  # fmt: skip
    return first, second, out


def straddling(options: Options, head_dim: int = 32) -> Case:
    """Rows 95 .. 156, 0 .. 40 and 300: tiles across a segment's end, from 0, and a lone row."""
    return random_case(head_dim, 3, (157, 41, 301), (62, 41, 1), options=options)
