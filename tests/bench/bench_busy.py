"""What decoding keeps of its speed beside busy neighbours, on one model in one run.

    python -m tests.bench.bench_busy MODEL [--rounds 5] [--stream]

thread      a thread of this process that spins in Python, and so wants the interpreter's lock
processes   two other processes that spin

Alone and busy take turns, and a round's ratio is what counts. Beside it stands the share of the
time that was spent in compiled code: what is missing was waited for the interpreter.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from dashinfer_lab import LLM, SamplingParams
from jit_kernels.runtime.clock import cycles_per_second
from jit_kernels.runtime.pool_code import Field
from jit_kernels.runtime.threads import Pool

_PROMPT: Final = "The capital of France is"
_SPINNING: Final = "while True: pass"


class CompiledTime:
    """Seconds that pools of this process have spent in compiled code."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._run = Pool.run

    def watch(self) -> None:
        watched, run = self, self._run

        def timed(pool: Pool, *arguments: int) -> None:
            before = int(pool._control[Field.RAN // 8])
            run(pool, *arguments)
            cycles = int(pool._control[Field.RAN // 8]) - before
            watched.seconds += cycles / cycles_per_second(pool.compiler)
            watched.calls += 1

        Pool.run = timed  # type: ignore[method-assign]


@contextmanager
def a_python_thread() -> Iterator[None]:
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def two_processes() -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", _SPINNING]) for _ in range(2)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def tokens_a_second(llm: LLM, count: int, stream: bool) -> float:
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    handle = llm.submit(_PROMPT, params)
    metrics = [event.metrics for event in handle][-1] if stream else None
    if metrics is None:
        handle.completion()
        metrics = handle.metrics
    assert metrics is not None
    first, last = metrics.first_token_seconds, metrics.last_token_seconds
    assert first is not None
    assert last is not None
    return (count - 1) / (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--weights", default="a16w8")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--stream", action="store_true", help="read token by token")
    chosen = parser.parse_args()
    compiled = CompiledTime()
    compiled.watch()
    neighbours = {"thread": a_python_thread, "processes": two_processes}
    with LLM(chosen.model, weights=chosen.weights, threads=chosen.threads) as llm:
        tokens_a_second(llm, 32, stream=False)
        for name, beside in neighbours.items():
            ratios: list[float] = []
            shares: list[float] = []
            calls: list[float] = []
            for _ in range(chosen.rounds):
                alone = tokens_a_second(llm, chosen.tokens, chosen.stream)
                with beside():
                    time.sleep(0.3)
                    seconds, number, begin = compiled.seconds, compiled.calls, time.perf_counter()
                    busy = tokens_a_second(llm, chosen.tokens, chosen.stream)
                    elapsed = time.perf_counter() - begin
                ratios.append(busy / alone)
                shares.append((compiled.seconds - seconds) / elapsed)
                calls.append((compiled.calls - number) / chosen.tokens)
            sys.stdout.write(
                f"{name:10} keeps {median(ratios):5.0%} of {alone:6.1f} tokens/s; "
                f"{median(shares):5.0%} of the time in compiled code, "
                f"{median(calls):.2f} calls a token\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
