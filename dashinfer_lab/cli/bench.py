"""`dashinfer-lab bench`: speed against this machine's bandwidth, in a table, against a baseline."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dashinfer_lab.benchmark import (
    BenchmarkPlan,
    BenchmarkReport,
    TableReport,
    measure,
    measure_tables,
)
from dashinfer_lab.cli.baseline import held_against, show_regressions
from dashinfer_lab.cli.loading import load, weights_facts
from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import AsJson, KvCacheDtype, Model, Threads, Weights
from dashinfer_lab.cli.output import print_json, print_rows, remark
from dashinfer_lab.cli.table import print_table
from dashinfer_lab.errors import ConfigError

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["bench", "rows"]

_USUAL = BenchmarkPlan()


class _Table(str, Enum):
    """Values of `--table`."""

    DASHINFER = "dashinfer"
    LMDEPLOY = "lmdeploy"


def _size(words: str, usual: int, least: int = 1) -> Any:
    return typer.Option(min=least, help=f"{words} (default: {usual})", show_default=False)


def bench(
    model: Model,
    prompt_tokens: Annotated[int | None, _size("Length of a prompt", _USUAL.prompt_tokens)] = None,
    new_tokens: Annotated[int | None, _size("Tokens to generate", _USUAL.new_tokens, 2)] = None,
    prefill_tokens: Annotated[
        int | None, _size("Prompt for prefill_tok_s", _USUAL.prefill_tokens)
    ] = None,
    batch: Annotated[int | None, _size("Requests decoded together", _USUAL.batch)] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")] = 5,
    table: Annotated[
        _Table | None, typer.Option(help="Measure what another engine's table has, as it has it.")
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline",
            help="Compare with figures kept before; keep these where none are. What became 20 % "
            "worse is named, and the exit code is 1.",
        ),
    ] = False,
    new_baseline: Annotated[
        bool, typer.Option("--new-baseline", help="Keep these figures for --baseline.")
    ] = False,
    weights: Weights = "auto",
    kv_cache_dtype: KvCacheDtype = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure MODEL: decoding, prefill, memory, and the share of the bandwidth it reaches."""
    sizes = {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens}
    sizes |= {"prefill_tokens": prefill_tokens, "batch": batch}
    plan = _plan({name: size for name, size in sizes.items() if size is not None}, table)
    busy = os.getloadavg()[0]
    if busy > 1:
        remark(text("bench.busy", load=busy))
    begin = perf_counter()
    llm = load(model, weights, threads, kv_cache_dtype, as_json=as_json)
    load_seconds = perf_counter() - begin
    with llm:
        facts = weights_facts(llm) if as_json else {}
        what = f"table {table.value}" if table else str(plan)
        plan = replace(plan, repetitions=repetitions)
        report: BenchmarkReport | TableReport = (
            measure_tables(llm, table.value, repetitions)
            if table
            else measure(llm, plan, load_seconds=load_seconds)
        )
        key = _key(llm, kv_cache_dtype, what)
    held = held_against(key, report.figures(), compare=baseline, replace=new_baseline)
    if as_json:
        print_json({"model": model, **report.as_dict(), **facts, **held.as_dict()})
    else:
        _show(report)
    show_regressions(held)
    if held.regressions:
        raise typer.Exit(1)


def _plan(given: dict[str, int], table: _Table | None) -> BenchmarkPlan:
    if table is not None and given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"--table {table.value} settles every size: leave away {named}")
    return BenchmarkPlan(**given)


def _key(llm: LLM, kv_cache_dtype: str, what: str) -> str:
    """Tell all that a baseline's figures depend on."""
    made = llm.artifact.metadata
    model = f"{made.get('source', '')}, {made['scheme']}, keys and values {kv_cache_dtype}"
    return f"{model}; {llm.isa}, {llm.threads} threads; {what}"


def _show(report: BenchmarkReport | TableReport) -> None:
    if isinstance(report, BenchmarkReport):
        print_rows(rows(report))
        return
    for table in report.tables:
        cells = [[f"{value:.6g}" for value in row.values()] for row in table.rows]
        print_table(table.columns, cells)


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
