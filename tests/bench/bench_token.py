"""A token, a step of several requests and a prompt against what their bytes and operations take.

    python -m tests.bench.bench_token [--threads 2] [--only token,batch,prefill]
        [--shape smollm2|qwen] [--schemes bf16,a16w8,a16w4] [--kv fp32] [--contexts 1024,32768]
        [--batches 8,16] [--layers 30] [--seconds 3]

A Llama of random weights, in the shape of the embedded model or of Qwen1.5-0.5B; pages are filled
directly, so that no context need be computed. A token is held against (weights + keys and values) /
read bandwidth. A step of M requests is held against its linear layers, each measured alone with M
rows, and its keys and values / bandwidth; a prompt of 512 tokens against its linear layers, one
after the other and nothing else, which are held against the FMA peak. Limits are measured in the
same run, in turns; each figure is the best of all runs. A token's line ends with the bytes held
beside weights, keys and values.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dashinfer_lab.config import cache_root
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import Chunk
from dashinfer_lab.engine.runner import CompiledRunner, page_bytes
from dashinfer_lab.lower import PlanLimits, ProgramPlan, cached_plan
from dashinfer_lab.sampling import SamplingState
from jit_kernels.compiler.jit import compiler_for
from jit_kernels.isa import detect
from jit_kernels.kernels.linear_tiles import row_tile
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.panels import PANEL_WIDTH
from jit_kernels.runtime import Operation, Pool, Program
from tests.bench.bench_attention import Shape
from tests.bench.bench_linear import (
    Task,
    operations_of,
    peak_task,
    read_task,
    say,
    weight_bytes,
)
from tests.kernels.linear_cases import random_linear
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

_WALKS = 8  # tokens drawn in one call, as the engine's
_SPARE = 64  # positions that walks may take beyond a context
_BATCH_CONTEXT = 1024
_PROMPT = 512
_COPIES_BYTES = 256 << 20  # beyond the last-level cache, as the weights of other layers are
_SHAPES: dict[str, dict[str, Any]] = {
    "smollm2": {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_layers": 30,
        "num_heads": 9, "num_kv_heads": 3, "head_dim": 64,
    },
    "qwen": {
        "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 2816, "num_layers": 24,
        "num_heads": 16, "num_kv_heads": 16, "head_dim": 64, "attention_bias": True,
    },
}  # fmt: skip


def best_seconds(runs: Sequence[Callable[[int], float]], duration: float) -> list[float]:
    """The best time of each, run in turns for `duration` seconds."""
    bests, turn, end = [float("inf")] * len(runs), 0, time.perf_counter() + duration
    while time.perf_counter() < end or turn < 4:
        for which, run in enumerate(runs):
            bests[which] = min(bests[which], run(turn))
        turn += 1
    return bests


@contextmanager
def opened(
    artifact: Artifact, kv_format: Any, pool: Pool, context: int, requests: int
) -> Generator[CompiledRunner]:
    """A runner for so many requests of that context, whose pages hold random tokens."""
    config = artifact.config
    limits = PlanLimits(_PROMPT, max(requests, 1), pool.num_threads, row_tile(detect()), kv_format)
    plan = cached_plan(artifact, limits, cache_root() / "lowered")
    length = context + _SPARE
    num_pages = requests * -(-length // PAGE_SIZE)
    runner = CompiledRunner(artifact, plan, pool, num_pages=num_pages, context_length=length)
    heads = config.num_heads // config.num_kv_heads
    shape = Shape(config.head_dim, heads, config.num_kv_heads, kv_format)
    runner.cache[:] = shape.page(np.random.default_rng(0))
    yield runner


def decoding(runner: CompiledRunner, context: int, requests: int) -> Callable[[int], float]:
    """Seconds of one token of all requests that have that context."""
    pages = runner.num_pages // requests
    greedy = SamplingState(0.0, 0, 1.0, 0, 0, context, None)
    chunks = [
        Chunk(
            row, [7 + row], context - 1, range(row * pages, (row + 1) * pages), "last", greedy,
            decoding=True, reaches_end=True,
        )
        for row in range(requests)
    ]  # fmt: skip

    def run(turn: int) -> float:
        del turn
        begin = time.perf_counter()
        walks = len(runner.walk(chunks, _WALKS))
        return (time.perf_counter() - begin) / walks

    return run


def bench_token(
    artifact: Artifact, kv_format: str, context: int, pool: Pool, duration: float
) -> None:
    read = read_task(pool)
    with opened(artifact, kv_format, pool, context, 1) as runner:
        token, reading = best_seconds([decoding(runner, context, 1), read.time], duration)
        use, plan = runner.memory_use, runner.plan
        kv_bytes = page_bytes(plan) * context // PAGE_SIZE
        bound = (plan.weight_bytes_per_token + kv_bytes) * reading / read.work
        say(
            f"token {_names(artifact, kv_format)} context {context:5}: {token * 1e3:7.2f} ms, "
            f"{bound / token:4.0%} of {plan.weight_bytes_per_token / 1e6:.0f} MB weights + "
            f"{kv_bytes / 1e6:.0f} MB keys and values at {read.work / reading / 1e9:.1f} GB/s; "
            f"beside them {(use.arena_bytes + use.step_bytes) / 1e6:.1f} MB"
        )


def bench_batch(
    artifact: Artifact, kv_format: str, requests: int, pool: Pool, duration: float
) -> None:
    read, context = read_task(pool), _BATCH_CONTEXT
    with opened(artifact, kv_format, pool, context, requests) as runner:
        plan = runner.plan
        linears = linear_seconds(plan, requests, pool, duration)
        step, reading = best_seconds([decoding(runner, context, requests), read.time], duration)
        kv_bytes = requests * page_bytes(plan) * context // PAGE_SIZE
        attending = kv_bytes * reading / read.work
        bound = linears + attending
        say(
            f"batch {_names(artifact, kv_format)} of {requests:2}, context {context}: "
            f"{step * 1e3:7.2f} ms, {step / bound:4.2f} times {linears * 1e3:.2f} ms of products "
            f"at {requests} rows + {attending * 1e3:.2f} ms of {kv_bytes / 1e6:.0f} MB keys and "
            f"values at {read.work / reading / 1e9:.1f} GB/s"
        )


def bench_prefill(artifact: Artifact, kv_format: str, pool: Pool, duration: float) -> None:
    peak = peak_task(pool)
    with opened(artifact, kv_format, pool, _PROMPT, 1) as runner:
        plan = runner.plan
        shapes = _linear_shapes(plan, of_prompt=True)
        weights = sum(k * n for _, _, k, n in shapes)
        alone = Task([Program(pool, _one_after_the_other(shapes, _PROMPT, pool))], 1.0)
        chunk = Chunk(0, list(range(7, 7 + _PROMPT)), 0, range(runner.num_pages), "last", None)

        def run(turn: int) -> float:
            del turn
            begin = time.perf_counter()
            runner.step([chunk])
            return time.perf_counter() - begin

        prompt, linears, chains = best_seconds([run, alone.time, peak.time], duration)
        reached = 2.0 * _PROMPT * weights / linears / (peak.work / chains)
        say(
            f"prompt {_names(artifact, kv_format)} of {_PROMPT}: {prompt * 1e3:6.1f} ms, "
            f"{_PROMPT / prompt:5.0f} tokens/s; its linear layers alone {linears * 1e3:6.1f} ms = "
            f"{linears / prompt:4.0%}, at {reached:4.0%} of {peak.work / chains / 1e9:.0f} GFLOP/s"
        )


_LinearShape = tuple[str, int, int, int]
"""Format and form, group, K, N."""


def _linear_shapes(plan: ProgramPlan, *, of_prompt: bool = False) -> list[_LinearShape]:
    """Of linear layers, in order; of a prompt, of those that see all of it."""
    return [
        (
            f"{op.kernel.removeprefix('linear_')} {op.constants.get('form', '')}".strip(),
            int(str(op.constants.get("group", 64))),
            int(str(op.operands["in_features"])),
            int(str(op.operands["num_panels"])) * PANEL_WIDTH,
        )
        for op in plan.ops
        if op.kernel.startswith("linear_") and (op.rows == "num_tokens" or not of_prompt)
    ]


def _one_after_the_other(shapes: Sequence[_LinearShape], rows: int, pool: Pool) -> list[Operation]:
    """Products of these shapes in this order, each with weights of its own."""
    made = {
        (kind, group, k, n): iter(
            operations_of(random_linear(kind, rows, k, n, weight_group=group), pool, count)
        )
        for (kind, group, k, n), count in Counter(shapes).items()
    }
    return [next(made[shape]) for shape in shapes]


def linear_seconds(plan: ProgramPlan, rows: int, pool: Pool, duration: float) -> float:
    """Seconds that all linear layers take with so many rows, each of them measured alone."""
    shapes, total = Counter(_linear_shapes(plan)), 0.0
    for (kind, group, k, n), count in shapes.items():
        case = random_linear(kind, rows, k, n, weight_group=group)
        copies = max(2, _COPIES_BYTES // weight_bytes(case))
        operations = operations_of(case, pool, copies)
        task = Task([Program(pool, [each]) for each in operations], 1.0)
        (best,) = best_seconds([task.time], duration / len(shapes))
        total += count * best
    return total


def _names(artifact: Artifact, kv_format: str) -> str:
    return f"{artifact.metadata['scheme']:8} {kv_format}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="token,batch,prefill")
    parser.add_argument("--schemes", default="bf16,a16w8,a16w4")
    parser.add_argument("--kv", default="fp32", help="formats of keys and values")
    parser.add_argument("--contexts", default="1024,32768")
    parser.add_argument("--batches", default="8,16")
    parser.add_argument("--shape", default="smollm2", choices=_SHAPES)
    parser.add_argument("--layers", type=int, help="of the shape's own otherwise")
    parser.add_argument("--seconds", type=float, default=3.0)
    chosen = parser.parse_args()
    contexts, batches = (
        [int(each) for each in numbers.split(",")] for numbers in (chosen.contexts, chosen.batches)
    )
    sizes = dict(_SHAPES[chosen.shape])
    sizes["num_layers"] = chosen.layers or sizes["num_layers"]
    config = tiny_llama(**sizes, context_length=max(*contexts, _BATCH_CONTEXT) + _SPARE)
    isa = detect()
    with (
        tempfile.TemporaryDirectory() as directory,
        Pool(chosen.threads, compiler_for(isa, cache_root() / "objects")) as pool,
    ):
        say(
            f"{isa.name} ({isa.cpu}), {chosen.threads} threads, shape of {chosen.shape}, "
            f"{config.num_layers} layers"
        )
        for scheme in chosen.schemes.split(","):
            artifact = tiny_artifact(Path(directory) / scheme.replace(":", "-"), scheme, config)
            artifact.prefault()
            for kv_format in chosen.kv.split(","):
                if "token" in chosen.only:
                    for context in contexts:
                        bench_token(artifact, kv_format, context, pool, chosen.seconds)
                if "prefill" in chosen.only:
                    bench_prefill(artifact, kv_format, pool, chosen.seconds)
                if "batch" in chosen.only:
                    for requests in batches:
                        bench_batch(artifact, kv_format, requests, pool, chosen.seconds)


if __name__ == "__main__":
    main()
