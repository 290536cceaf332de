from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

from dashinfer_lab.benchmark import BenchmarkPlan, measure
from dashinfer_lab.benchmark.speed import _decode_rate, _Pauses
from dashinfer_lab.sampling import SamplingParams
from tests.cli.conftest import FakeLLM, Shell, metrics

ISSUE_KEYS = (
    "decode_tok_s prefill_tok_s ttft_s weight_bytes read_bandwidth_gbs bandwidth_fraction "
    "peak_rss_mb load_s isa threads"
).split()


pytestmark = pytest.mark.usefixtures("known_roof")


def test_bench_reports_every_promised_figure(made: list[FakeLLM], shell: Shell) -> None:
    report = json.loads(shell("bench", "m", "--repetitions", "1", "--json").out)

    assert set(report) >= {*ISSUE_KEYS, "model", "batch", "batch_decode_tok_s"}
    assert (report["isa"], report["threads"]) == ("fake-isa", 2)


def test_bench_prints_its_figures_for_people(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("bench", "m", "--repetitions", "1")

    assert "10.0 tokens/s" in ended.out
    assert "bandwidth used by decode" in ended.out


def test_the_figures_follow_from_the_requests_times() -> None:
    plan = BenchmarkPlan(
        prompt_tokens=100, new_tokens=50, prefill_tokens=200, batch=3, repetitions=2
    )
    with FakeLLM("m") as llm:
        llm.engine.events = [
            step(400, 0, requests=3, decoded=1, seconds=4.0),
            step(0, 0, requests=3, decoded=6, seconds=0.2),
            step(0, 1, requests=3, decoded=3, seconds=0.1),
            step(0, 2, requests=2, decoded=8, seconds=1.0),
        ]
        report = measure(llm, plan, load_seconds=1.5)  # type: ignore[arg-type]  # a stand-in

    assert report.decode_tok_s == pytest.approx(10, rel=0.1)  # the pauses are short
    assert report.batch_decode_tok_s == pytest.approx(30)
    assert report.ttft_s == pytest.approx(0.25)
    assert report.prefill_tok_s == pytest.approx(200 / 0.25)
    # Half of the new tokens lie in the context on average: 900 + 2 · (100 + 25) bytes a step.
    assert report.step_bytes == 1150
    assert report.bandwidth_fraction == pytest.approx(1150 * 10 / 2e4)
    assert report.load_s == 1.5


def step(
    prefilled: int, finished: int, *, requests: int = 1, decoded: int = 1, seconds: float = 1.0
) -> SimpleNamespace:
    return SimpleNamespace(
        num_prefill_tokens=prefilled, num_finished=finished, num_requests=requests,
        num_decode_tokens=decoded, total_seconds=seconds,
    )  # fmt: skip


def test_the_roof_is_read_between_calls_that_decode_and_that_time_does_not_count() -> None:
    readings: list[int] = []

    def read() -> float:
        time.sleep(0.02)
        readings.append(len(llm.asked))
        return 2e-5

    llm = FakeLLM("m")
    llm.engine.events = [step(100, 0), step(0, 0), step(0, 1)]
    with _Pauses(llm, read) as pauses:  # type: ignore[arg-type]  # a stand-in
        llm.generate([{"prompt_token_ids": [1]}], SamplingParams(max_tokens=11))
    run = [metrics(1, 11)]

    assert (readings, pauses.readings_gbs) == ([1], [2e-5])
    assert pauses.seconds == pytest.approx(0.02, abs=0.01)
    assert llm.engine.subscribers == []
    assert _decode_rate(run) == pytest.approx(10)
    assert _decode_rate(run, 0.5) == pytest.approx(20)


def test_no_two_prompts_are_alike_so_no_prefix_is_shared() -> None:
    with FakeLLM("m") as llm:
        measure(llm, BenchmarkPlan(repetitions=2), load_seconds=0)  # type: ignore[arg-type]

    prompts = [tuple(prompt["prompt_token_ids"]) for prompt, _ in llm.asked]  # type: ignore[index]
    assert len(set(prompts)) == len(prompts)


@pytest.mark.parametrize("option", ["--batch", "--prompt-tokens", "--repetitions"])
def test_a_size_of_nothing_is_wrong_usage(option: str, shell: Shell) -> None:
    ended = shell("bench", "m", option, "0")

    assert ended.code == 2
    assert option in ended.err


def test_a_plan_beyond_the_context_is_refused_before_any_work(
    made: list[FakeLLM], shell: Shell
) -> None:
    ended = shell("bench", "m", "--prompt-tokens", "1000", "--new-tokens", "25", "--json")

    assert ended.code == 1
    assert "1025 tokens, the context 1024" in json.loads(ended.out)["error"]["message"]
    assert made[0].asked == []


def test_more_requests_than_run_together_are_refused_at_once(
    made: list[FakeLLM], shell: Shell
) -> None:
    ended = shell("bench", "m", "--batch", "99999999999")

    assert ended.code == 1
    assert "batch=99999999999 exceeds the 64 requests" in ended.err
    assert made[0].asked == []
