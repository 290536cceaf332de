from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashinfer_lab.benchmark import Baseline, Figure, keep, kept, measure_tables
from dashinfer_lab.config import cache_root
from tests.cli.conftest import FakeLLM, Shell

pytestmark = pytest.mark.usefixtures("known_roof")

DASHINFER_COLUMNS = (
    "Batch_size Request_num Avg_in_tokens Avg_out_tokens Avg_context_time(s) "
    "Avg_generate_time(s) Avg_throughput(token/s) Throughput(token/s) QPS"
).split()


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path))


def roomy(*_: Any, **__: Any) -> FakeLLM:
    return FakeLLM("m", config=SimpleNamespace(vocab_size=97, context_length=4096))


def test_dashinfers_table_has_its_rows_and_columns() -> None:
    with roomy() as llm:
        (table,) = measure_tables(llm, "dashinfer", 1).tables  # type: ignore[arg-type]

    assert list(table.columns) == DASHINFER_COLUMNS
    sizes = [(row["Avg_in_tokens"], row["Batch_size"], row["Avg_out_tokens"]) for row in table.rows]
    assert sizes == [(length, batch, 128) for length in (128, 1200) for batch in (1, 2, 4, 8)]
    # The stand-in's first token comes after 0.25 s, then ten a second: 127 more in 12.7 s.
    row = table.rows[3]
    assert row["Avg_context_time(s)"] == pytest.approx(0.25)
    assert row["Avg_generate_time(s)"] == pytest.approx(12.7)
    assert row["Throughput(token/s)"] == pytest.approx(8 * 128 / 12.7)
    assert row["QPS"] == pytest.approx(8 / (0.25 + 12.7))


def test_lmdeploys_tables_are_static_inference_and_request_rate() -> None:
    with roomy() as llm:
        static, requests = measure_tables(llm, "lmdeploy", 1).tables  # type: ignore[arg-type]

    assert [(row["batch"], row["prompt_tokens"], row["completion_tokens"]) for row in static.rows]
    assert {(row["prompt_tokens"], row["completion_tokens"]) for row in static.rows} == {(1, 2048)}
    assert static.rows[1]["out(token/s)"] == pytest.approx(2 * 2048 / (0.25 + 204.7))
    (row,) = requests.rows
    asked = llm.asked[-64:]
    assert row["requests"] == 64
    assert row["completion_tokens"] == sum(params.max_tokens or 0 for _, params in asked)
    assert row["RPS"] == pytest.approx(64 / row["elapsed(s)"])


def test_lengths_of_requests_are_log_normal_and_the_same_every_time() -> None:
    with roomy() as first, roomy() as second:
        for llm in (first, second):
            measure_tables(llm, "lmdeploy", 1)  # type: ignore[arg-type]

    lengths = [params.max_tokens or 0 for _, params in first.asked[-64:]]
    assert lengths == [params.max_tokens for _, params in second.asked[-64:]]
    assert len(set(lengths)) > 40
    # 64 draws around a median of 128 with sigma 0.6: the median's own deviation is 0.6 · 1.25 / 8,
    # a tenth, and three of them are a third.
    assert 128 * 0.66 < sorted(lengths)[32] < 128 * 1.5


def test_a_table_is_printed_with_its_heading(
    monkeypatch: pytest.MonkeyPatch, made: list[FakeLLM], shell: Shell
) -> None:
    monkeypatch.setattr("dashinfer_lab.LLM", roomy)
    ended = shell("bench", "m", "--table", "dashinfer", "--repetitions", "1")

    assert ended.code == 0
    heading, *rows = ended.out.splitlines()
    assert heading.split() == DASHINFER_COLUMNS
    assert len(rows) == 8


def test_a_table_that_the_context_cannot_hold_is_refused(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("bench", "m", "--table", "lmdeploy")

    assert ended.code == 1
    assert "2049 tokens, the context 1024" in ended.err
    assert made[0].asked == []


def test_a_table_takes_no_sizes_of_its_own(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("bench", "m", "--table", "dashinfer", "--batch", "2")

    assert ended.code == 1
    assert "leave away --batch" in ended.err
    assert made == []


BENCH = ("bench", "m", "--repetitions", "1")


def test_the_first_baseline_is_kept_and_the_next_run_is_held_against_it(
    made: list[FakeLLM], shell: Shell
) -> None:
    first = shell(*BENCH, "--baseline")
    second = shell(*BENCH, "--baseline")

    assert (first.code, second.code) == (0, 0)
    assert "baseline kept" in first.err
    assert "nothing is 20 % worse" in second.err
    assert "baseline kept" not in second.err


def test_what_became_a_fifth_worse_is_named_and_ends_with_1(
    made: list[FakeLLM], shell: Shell
) -> None:
    shell(*BENCH, "--new-baseline")
    path = cache_root() / "baselines.json"
    ((key, entry),) = json.loads(path.read_text(encoding="utf-8")).items()
    entry["figures"]["decode_tok_s"] *= 2
    path.write_text(json.dumps({key: entry}), encoding="utf-8")

    ended = shell(*BENCH, "--baseline", "--json")
    report = json.loads(ended.out)["baseline"]

    assert ended.code == 1
    assert [(it["name"], round(it["percent"])) for it in report["regressions"]] == [
        ("decode_tok_s", -50)
    ]
    assert "decode_tok_s was 20, is 10 (-50 %)" in ended.err


def test_another_plan_has_another_baseline(made: list[FakeLLM], shell: Shell) -> None:
    shell(*BENCH, "--baseline")
    other = shell(*BENCH, "--batch", "3", "--baseline")

    assert "baseline kept" in other.err
    assert len(json.loads((cache_root() / "baselines.json").read_text(encoding="utf-8"))) == 2


@pytest.mark.parametrize(
    ("now", "more_is_better", "is_worse"),
    [
        *[(80.1, True, False), (79.9, True, True), (500, True, False)],
        *[(119.9, False, False), (120.1, False, True), (1, False, False)],
    ],
)
def test_a_fifth_is_where_worse_begins(now: float, more_is_better: bool, is_worse: bool) -> None:
    found = Baseline("0", {"it": 100.0}).regressions([Figure("it", now, more_is_better)])

    assert bool(found) is is_worse


def test_a_damaged_file_is_no_baseline() -> None:
    keep("key", [Figure("it", 1.0)])
    path = cache_root() / "baselines.json"
    for text in ("", "[]", '{"key": 3}', '{"key": {"figures": {"it": "x"}, "version": "0"}}'):
        path.write_text(text, encoding="utf-8")

        assert kept("key") is None
