"""`dashinfer-lab bench`: speed of a model against this machine's own memory bandwidth."""

from __future__ import annotations

import os
from time import perf_counter
from typing import Annotated

import typer

from dashinfer_lab.benchmark import BenchmarkPlan, BenchmarkReport, measure
from dashinfer_lab.cli.loading import load, weights_facts
from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import AsJson, KvCacheDtype, Model, Threads, Weights
from dashinfer_lab.cli.output import print_json, print_rows, remark

__all__ = ["bench", "rows"]


def bench(
    model: Model,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of a prompt.")] = 128,
    new_tokens: Annotated[int, typer.Option(min=2, help="Tokens to generate.")] = 128,
    prefill_tokens: Annotated[int, typer.Option(min=1, help="Prompt for prefill_tok_s.")] = 512,
    batch: Annotated[int, typer.Option(min=1, help="Requests decoded together.")] = 8,
    repetitions: Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")] = 5,
    weights: Weights = "auto",
    kv_cache_dtype: KvCacheDtype = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure MODEL: decoding, prefill, memory, and the share of the bandwidth it reaches."""
    plan = BenchmarkPlan(prompt_tokens, new_tokens, prefill_tokens, batch, repetitions)
    busy = os.getloadavg()[0]
    if busy > 1:
        remark(text("bench.busy", load=busy))
    begin = perf_counter()
    llm = load(model, weights, threads, kv_cache_dtype, as_json=as_json)
    load_seconds = perf_counter() - begin
    with llm:
        facts = weights_facts(llm) if as_json else {}
        report = measure(llm, plan, load_seconds=load_seconds)
    if as_json:
        print_json({"model": model, **report.as_dict(), **facts})
    else:
        print_rows(rows(report))


def rows(report: BenchmarkReport) -> list[tuple[str, str]]:
    """Figures of `report` as a person reads them."""
    bandwidths = {"median": report.read_bandwidth_gbs, "best": report.best_bandwidth_gbs}
    return [
        (text("bench.decode"), text("bench.speed", rate=report.decode_tok_s)),
        (
            text("bench.batch", batch=report.batch),
            text("bench.total_speed", rate=report.batch_decode_tok_s),
        ),
        (text("bench.prefill"), text("bench.prefill_speed", rate=report.prefill_tok_s)),
        (text("bench.ttft"), f"{report.ttft_s:.3f} s"),
        (text("bench.weights"), f"{report.weight_bytes / 1e6:.1f} MB"),
        (text("bench.bandwidth"), text("bench.bandwidths", **bandwidths)),
        (text("bench.fma"), text("bench.measured", peak=report.fma_peak_gflops)),
        (text("bench.fraction"), f"{100 * report.bandwidth_fraction:.0f} %"),
        (text("bench.memory"), f"{report.peak_rss_mb:.0f} MB"),
        (text("bench.load"), f"{report.load_s:.2f} s"),
        (text("bench.machine"), text("bench.isa", isa=report.isa, threads=report.threads)),
    ]
