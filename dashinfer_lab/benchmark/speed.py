"""Speed of a loaded model against this machine's own roof; knows no kernel and no terminal.

Decoding reads every weight once a token, so memory bandwidth bounds it: `bandwidth_fraction` is
the share that decoding made use of. Bandwidth of a shared machine drifts within seconds, so it is
measured while decoding: the engine's thread reads memory in pauses between its calls.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from dashinfer_lab.benchmark.baseline import Figure
from dashinfer_lab.benchmark.requests import (
    RandomRequests,
    Shape,
    first_token_seconds,
    require_batch,
    require_context,
)
from dashinfer_lab.engine.auto_weights import keep_bandwidth
from dashinfer_lab.events import RequestMetrics, StepEvent

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["BenchmarkPlan", "BenchmarkReport", "measure"]

_SECONDS_BETWEEN_PAUSES = 0.075


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """What is run, in tokens, and how often: the report holds medians."""

    prompt_tokens: int = 128
    new_tokens: int = 128
    prefill_tokens: int = 512
    batch: int = 8
    repetitions: int = 5


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """What was measured: `_s` seconds, `_tok_s` tokens a second, `_gbs` 1e9 bytes a second.

    ttft_s: of the plan's prompt, alone.  prefill_tok_s: of the longer prompt.
    batch_decode_tok_s: of all requests, while every one decodes and no prompt is computed.
    step_bytes: weights and cached keys and values that decoding one token reads.
    read_bandwidth_gbs: what memory gave over the run, in the median; best_bandwidth_gbs: at best.
    bandwidth_fraction: of read_bandwidth_gbs.
    """

    decode_tok_s: float
    prefill_tok_s: float
    ttft_s: float
    batch: int
    batch_decode_tok_s: float
    weight_bytes: int
    step_bytes: int
    read_bandwidth_gbs: float
    best_bandwidth_gbs: float
    fma_peak_gflops: float
    bandwidth_fraction: float
    peak_rss_mb: float
    load_s: float
    isa: str
    threads: int

    def as_dict(self) -> dict[str, object]:
        """Names and values, for `--json`."""
        return asdict(self)

    def figures(self) -> list[Figure]:
        """What a later benchmark may be held against."""
        rates = ("decode_tok_s", "batch_decode_tok_s", "prefill_tok_s", "bandwidth_fraction")
        costs = ("ttft_s", "peak_rss_mb")
        return [
            *(Figure(name, getattr(self, name)) for name in rates),
            *(Figure(name, getattr(self, name), more_is_better=False) for name in costs),
        ]


def measure(llm: LLM, plan: BenchmarkPlan, *, load_seconds: float) -> BenchmarkReport:
    """Run `plan` on `llm`, and measure the machine's roof in pauses of decoding.

    Each repetition is held against the bandwidth of its own pauses, whose time counts for
    nothing; medians are reported. The bandwidth is kept, for `weights="auto"` to foretell speed by.
    """
    from jit_kernels.bench import RoofMeter

    _require_room(plan, llm.config.context_length)
    run = _Runner(llm, plan)
    for warm_up in (run.alone, run.long, run.together):
        warm_up()  # faults in weights and cache, before a roof touches memory of its own
    peak_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts KiB
    memory = llm.memory()
    mean_context = plan.prompt_tokens + plan.new_tokens // 2
    step_bytes = memory.weight_bytes_per_token + memory.kv_bytes_per_position * mean_context
    meter = RoofMeter(llm.threads)
    best_gbs = meter.bandwidth()[0]
    repetitions: list[_Repetition] = []
    with meter.readings() as read:
        for _ in range(plan.repetitions):
            with _Pauses(llm, read) as pauses:
                alone = run.alone()
            repetitions.append(
                _Repetition(
                    decode_tok_s=_decode_rate(alone, pauses.seconds),
                    ttft_s=first_token_seconds(alone),
                    bandwidth_gbs=median(pauses.readings_gbs),
                    prefill_tok_s=plan.prefill_tokens / first_token_seconds(run.long()),
                    batch_decode_tok_s=_rate_together(llm, run),
                )
            )
            best_gbs = max(best_gbs, *pauses.readings_gbs)
    bandwidth_gbs = median(each.bandwidth_gbs for each in repetitions)
    keep_bandwidth(llm.isa, llm.threads, bandwidth_gbs)
    return BenchmarkReport(
        decode_tok_s=median(each.decode_tok_s for each in repetitions),
        prefill_tok_s=median(each.prefill_tok_s for each in repetitions),
        ttft_s=median(each.ttft_s for each in repetitions),
        batch=plan.batch,
        batch_decode_tok_s=median(each.batch_decode_tok_s for each in repetitions),
        weight_bytes=memory.weight_bytes,
        step_bytes=step_bytes,
        read_bandwidth_gbs=bandwidth_gbs,
        best_bandwidth_gbs=best_gbs,
        fma_peak_gflops=meter.fma_peak(),
        bandwidth_fraction=median(
            step_bytes * each.decode_tok_s / (each.bandwidth_gbs * 1e9) for each in repetitions
        ),
        peak_rss_mb=peak_rss_mb,
        load_s=load_seconds,
        isa=llm.isa,
        threads=llm.threads,
    )


@dataclass(frozen=True, slots=True)
class _Repetition:
    """One round of the plan; `bandwidth_gbs` is what memory gave in pauses of decoding alone."""

    decode_tok_s: float
    ttft_s: float
    bandwidth_gbs: float
    prefill_tok_s: float
    batch_decode_tok_s: float


def _require_room(plan: BenchmarkPlan, context_length: int) -> None:
    """Refuse at once what would be refused after minutes of work."""
    require_batch(plan.batch)
    longest = max(plan.prompt_tokens + plan.new_tokens, plan.prefill_tokens + 1)
    way_out = "lower prompt_tokens, new_tokens or prefill_tokens"
    require_context(longest, context_length, way_out)


class _Pauses:
    """Reads memory between calls that decode, about every 75 ms, on the engine's own thread."""

    def __init__(self, llm: LLM, read: Callable[[], float]) -> None:
        self.readings_gbs: list[float] = []
        self.seconds = 0.0
        self._engine = llm.engine
        self._read = read
        self._last_seconds = 0.0

    def __enter__(self) -> _Pauses:
        self._unsubscribe = self._engine.subscribe(self._after_step)
        return self

    def __exit__(self, *_: object) -> None:
        self._unsubscribe()
        if not self.readings_gbs:  # too few tokens for a pause
            self.readings_gbs.append(self._read())

    def _after_step(self, event: StepEvent) -> None:
        begin = time.perf_counter()
        prefilled, ended = event.num_prefill_tokens > 0, event.num_finished > 0
        if prefilled or ended or begin - self._last_seconds < _SECONDS_BETWEEN_PAUSES:
            return
        self.readings_gbs.append(self._read())
        self._last_seconds = time.perf_counter()
        self.seconds += self._last_seconds - begin


class _Runner:
    """Runs the plan on prompts of random ids, no two alike."""

    def __init__(self, llm: LLM, plan: BenchmarkPlan) -> None:
        self._plan = plan
        self._requests = RandomRequests(llm)

    def alone(self) -> list[RequestMetrics]:
        """One request."""
        return self._requests.run([Shape(self._plan.prompt_tokens, self._plan.new_tokens)])

    def long(self) -> list[RequestMetrics]:
        """The longer prompt, for its first token."""
        return self._requests.run([Shape(self._plan.prefill_tokens, 1)])

    def together(self) -> list[RequestMetrics]:
        """A batch of requests."""
        shape = Shape(self._plan.prompt_tokens, self._plan.new_tokens)
        return self._requests.run([shape] * self._plan.batch)


class _Decoding:
    """Tokens and seconds of calls that compute no prompt, by how many requests decode in them."""

    def __init__(self, llm: LLM) -> None:
        self._engine = llm.engine
        self._tokens: defaultdict[int, int] = defaultdict(int)
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def __enter__(self) -> _Decoding:
        self._unsubscribe = self._engine.subscribe(self._after_step)
        return self

    def __exit__(self, *_: object) -> None:
        self._unsubscribe()

    @property
    def rate(self) -> float:
        """Tokens a second while most requests decoded; 0 where nothing was decoded alone."""
        most = max(self._tokens, default=0)
        return self._tokens[most] / self._seconds[most] if most else 0.0

    def _after_step(self, event: StepEvent) -> None:
        if event.num_prefill_tokens == 0 and event.num_decode_tokens:
            self._tokens[event.num_requests] += event.num_decode_tokens
            self._seconds[event.num_requests] += event.total_seconds


def _rate_together(llm: LLM, run: _Runner) -> float:
    with _Decoding(llm) as decoding:
        run.together()
    return decoding.rate


def _decode_rate(run: Sequence[RequestMetrics], paused_seconds: float = 0.0) -> float:
    """Tokens a second after each request's first, summed over the requests of a run."""
    rate = 0.0
    for metrics in run:
        intervals = metrics.num_output_tokens - 1
        if metrics.seconds_per_token and intervals > 0:
            rate += intervals / (metrics.seconds_per_token * intervals - paused_seconds)
    return rate
