"""Tables that others publish of their engines, measured on a model of ours under their headings.

`dashinfer`: its performance test, batches of 1 to 8 prompts of 128 and 1,200 tokens, 128 new.
`lmdeploy`: its static inference, 1 token in and 2,048 out, and its request rate, on requests whose
lengths are log-normal. Every figure is the median of the repetitions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from dashinfer_lab.benchmark.baseline import Figure
from dashinfer_lab.benchmark.requests import (
    RandomRequests,
    Shape,
    first_token_seconds,
    require_context,
)
from dashinfer_lab.events import RequestMetrics

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["TABLES", "BenchmarkTable", "TableReport", "measure_tables"]

_BATCHES: Final = (1, 2, 4, 8)
_DASHINFER_PROMPTS: Final = (128, 1200)
_DASHINFER_NEW: Final = 128
_LMDEPLOY_STATIC: Final = Shape(1, 2048)
_LMDEPLOY_REQUESTS: Final = 64
_LMDEPLOY_MEDIAN: Final = 128
_LMDEPLOY_SIGMA: Final = 0.6
_LMDEPLOY_BOUNDS: Final = (8, 768)

Row = Mapping[str, float]
"""A figure for each column."""


@dataclass(frozen=True, slots=True)
class BenchmarkTable:
    """Rows under one heading; `rates` are the columns of which more is better."""

    name: str
    rates: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self.rows[0])

    def as_dict(self) -> dict[str, object]:
        """Name and rows, for `--json`."""
        return {"table": self.name, "rows": [dict(row) for row in self.rows]}

    def figures(self) -> list[Figure]:
        """The rates of every row, named by the row's first columns."""
        named = self.columns[:3]
        return [
            Figure(f"{self.name} {' '.join(f'{row[key]:g}' for key in named)}: {rate}", row[rate])
            for row in self.rows
            for rate in self.rates
        ]


@dataclass(frozen=True, slots=True)
class TableReport:
    """The tables of one name."""

    tables: tuple[BenchmarkTable, ...]

    def as_dict(self) -> dict[str, object]:
        """The tables, for `--json`."""
        return {"tables": [table.as_dict() for table in self.tables]}

    def figures(self) -> list[Figure]:
        """What a later benchmark may be held against."""
        return [figure for table in self.tables for figure in table.figures()]


def measure_tables(llm: LLM, name: str, repetitions: int) -> TableReport:
    """Measure the tables of `name`, a key of `TABLES`.

    Raises RequestError at once where the model's context holds no request of theirs.
    """
    shapes, measured = TABLES[name]
    longest = max(sum(shape) for shape in shapes)
    require_context(longest, llm.config.context_length, f"the table {name!r} needs a longer one")
    requests = RandomRequests(llm)
    requests.run([shapes[0]])  # faults in weights and cache
    return TableReport(tuple(measured(requests, repetitions)))


def _dashinfer(requests: RandomRequests, repetitions: int) -> list[BenchmarkTable]:
    rates = ("Avg_throughput(token/s)", "Throughput(token/s)", "QPS")
    rows = [
        _median_row(requests, [Shape(length, _DASHINFER_NEW)] * batch, repetitions, _dashinfer_row)
        for length in _DASHINFER_PROMPTS
        for batch in _BATCHES
    ]
    return [BenchmarkTable("dashinfer", rates, tuple(rows))]


def _dashinfer_row(run: Sequence[RequestMetrics]) -> Row:
    new_tokens = fmean(it.num_output_tokens for it in run)
    generate_seconds = fmean(_generate_seconds(it) for it in run)
    rate = new_tokens / generate_seconds
    return {
        "Batch_size": len(run),
        "Request_num": len(run),
        "Avg_in_tokens": fmean(it.num_prompt_tokens for it in run),
        "Avg_out_tokens": new_tokens,
        "Avg_context_time(s)": fmean(it.ttft_seconds or 0.0 for it in run),
        "Avg_generate_time(s)": generate_seconds,
        "Avg_throughput(token/s)": rate,
        "Throughput(token/s)": rate * len(run),
        "QPS": len(run) / _elapsed_seconds(run),
    }


def _lmdeploy(requests: RandomRequests, repetitions: int) -> list[BenchmarkTable]:
    static = [
        _median_row(requests, [_LMDEPLOY_STATIC] * batch, repetitions, _static_row)
        for batch in _BATCHES
    ]
    served = _median_row(requests, _log_normal_shapes(), repetitions, _rate_row)
    return [
        BenchmarkTable("lmdeploy static", ("out(token/s)", "total(token/s)"), tuple(static)),
        BenchmarkTable("lmdeploy requests", ("completion(token/s)", "RPS"), (served,)),
    ]


def _static_row(run: Sequence[RequestMetrics]) -> Row:
    prompt, new, seconds = _totals(run)
    return {
        "batch": len(run),
        "prompt_tokens": prompt / len(run),
        "completion_tokens": new / len(run),
        "out(token/s)": new / seconds,
        "total(token/s)": (prompt + new) / seconds,
        **_first_token_columns(run),
    }


def _rate_row(run: Sequence[RequestMetrics]) -> Row:
    prompt, new, seconds = _totals(run)
    return {
        "requests": len(run),
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "elapsed(s)": seconds,
        "completion(token/s)": new / seconds,
        "total(token/s)": (prompt + new) / seconds,
        "RPS": len(run) / seconds,
        "RPM": 60 * len(run) / seconds,
        **_first_token_columns(run),
    }


def _first_token_columns(run: Sequence[RequestMetrics]) -> Row:
    """Time to first token, from arrival."""
    seconds = [it.ttft_seconds or 0.0 for it in run]
    return {
        "FTL_min(s)": min(seconds),
        "FTL_ave(s)": fmean(seconds),
        "FTL_max(s)": first_token_seconds(run),
    }


def _log_normal_shapes() -> list[Shape]:
    """Lengths of requests, the same every time: median 128 in and 128 out, from 8 to 768."""
    drawn, (fewest, most) = random.Random(0), _LMDEPLOY_BOUNDS

    def length() -> int:
        tokens = drawn.lognormvariate(math.log(_LMDEPLOY_MEDIAN), _LMDEPLOY_SIGMA)
        return min(max(round(tokens), fewest), most)

    return [Shape(length(), length()) for _ in range(_LMDEPLOY_REQUESTS)]


def _median_row(
    requests: RandomRequests,
    shapes: Sequence[Shape],
    repetitions: int,
    row_of: Callable[[Sequence[RequestMetrics]], Row],
) -> Row:
    rows = [row_of(requests.run(shapes)) for _ in range(repetitions)]
    return {column: median(row[column] for row in rows) for column in rows[0]}


def _totals(run: Sequence[RequestMetrics]) -> tuple[int, int, float]:
    """Tokens of all prompts, tokens of all answers, seconds."""
    prompt = sum(it.num_prompt_tokens for it in run)
    return prompt, sum(it.num_output_tokens for it in run), _elapsed_seconds(run)


def _generate_seconds(metrics: RequestMetrics) -> float:
    """Seconds from the first token to the last."""
    return (metrics.seconds_per_token or 0.0) * (metrics.num_output_tokens - 1)


def _elapsed_seconds(run: Sequence[RequestMetrics]) -> float:
    """Seconds from the first arrival to the last end."""
    return max(it.finished_seconds or 0.0 for it in run) - min(it.arrival_seconds for it in run)


TABLES: Final[
    Mapping[str, tuple[Sequence[Shape], Callable[[RandomRequests, int], list[BenchmarkTable]]]]
] = {
    "dashinfer": ([Shape(length, _DASHINFER_NEW) for length in _DASHINFER_PROMPTS], _dashinfer),
    "lmdeploy": ([_LMDEPLOY_STATIC, *_log_normal_shapes()], _lmdeploy),
}
"""By name: the requests of a table, and what measures it."""
