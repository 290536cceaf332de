"""Speed of a loaded model against this machine's own roof; knows no kernel and no terminal.

Decoding reads every weight once a token, so memory bandwidth bounds it: `bandwidth_fraction` is
the share of the bandwidth, measured in this same process, that decoding made use of.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from dashinfer_lab.errors import EngineError
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.sampling import SamplingParams

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["BenchmarkPlan", "BenchmarkReport", "measure"]


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
    step_bytes: weights and cached keys and values that decoding one token reads.
    """

    decode_tok_s: float
    prefill_tok_s: float
    ttft_s: float
    batch: int
    batch_decode_tok_s: float
    weight_bytes: int
    step_bytes: int
    read_bandwidth_gbs: float
    fma_peak_gflops: float
    bandwidth_fraction: float
    peak_rss_mb: float
    load_s: float
    isa: str
    threads: int

    def as_dict(self) -> dict[str, object]:
        """Names and values, for `--json`."""
        return asdict(self)


def measure(llm: LLM, plan: BenchmarkPlan, *, load_seconds: float) -> BenchmarkReport:
    """Run `plan` on `llm`, then measure the machine's roof with the same number of threads."""
    from jit_kernels.bench import measure_roof

    prompts = _prompts(llm.config.vocab_size)
    _generate(llm, prompts, 1, plan.prompt_tokens, 4)  # the first run faults in the weights
    alone = _repeat(llm, prompts, plan, 1, plan.prompt_tokens, plan.new_tokens)
    long = _repeat(llm, prompts, plan, 1, plan.prefill_tokens, 1)
    together = _repeat(llm, prompts, plan, plan.batch, plan.prompt_tokens, plan.new_tokens)
    peak_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts KiB
    roof = measure_roof(llm.threads)
    memory = llm.memory()
    decode_tok_s = median(_decode_rate(run) for run in alone)
    mean_context = plan.prompt_tokens + plan.new_tokens // 2
    step_bytes = memory.weight_bytes_per_token + memory.kv_bytes_per_position * mean_context
    return BenchmarkReport(
        decode_tok_s=decode_tok_s,
        prefill_tok_s=plan.prefill_tokens / median(_ttft(run) for run in long),
        ttft_s=median(_ttft(run) for run in alone),
        batch=plan.batch,
        batch_decode_tok_s=median(_decode_rate(run) for run in together),
        weight_bytes=memory.weight_bytes,
        step_bytes=step_bytes,
        read_bandwidth_gbs=roof.read_bandwidth_gbs,
        fma_peak_gflops=roof.fma_peak_gflops,
        bandwidth_fraction=step_bytes * decode_tok_s / (roof.read_bandwidth_gbs * 1e9),
        peak_rss_mb=peak_rss_mb,
        load_s=load_seconds,
        isa=llm.isa,
        threads=llm.threads,
    )


def _prompts(vocab_size: int) -> Callable[[int], list[int]]:
    """Prompts of a given length, no two alike, the same in every run of the benchmark."""
    draw = random.Random(0)
    return lambda length: [draw.randrange(vocab_size) for _ in range(length)]


def _repeat(
    llm: LLM,
    prompts: Callable[[int], list[int]],
    plan: BenchmarkPlan,
    batch: int,
    prompt_tokens: int,
    new_tokens: int,
) -> list[list[RequestMetrics]]:
    return [
        _generate(llm, prompts, batch, prompt_tokens, new_tokens) for _ in range(plan.repetitions)
    ]


def _generate(
    llm: LLM, prompts: Callable[[int], list[int]], batch: int, prompt_tokens: int, new_tokens: int
) -> list[RequestMetrics]:
    params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
    asked = [{"prompt_token_ids": prompts(prompt_tokens)} for _ in range(batch)]
    return [_metrics(output.metrics) for output in llm.generate(asked, params)]


def _metrics(metrics: RequestMetrics | None) -> RequestMetrics:
    if metrics is None:
        raise EngineError("a request of the benchmark ended without metrics; run it again")
    return metrics


def _ttft(run: Sequence[RequestMetrics]) -> float:
    """Seconds until every request of a run had its first token."""
    return max(metrics.ttft_seconds or 0.0 for metrics in run)


def _decode_rate(run: Sequence[RequestMetrics]) -> float:
    """Tokens a second after each request's first, summed over the requests of a run."""
    return sum(1 / metrics.seconds_per_token for metrics in run if metrics.seconds_per_token)
