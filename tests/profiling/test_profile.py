from __future__ import annotations

import json

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.profiling import OpProfile

PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
PROMPT = {"prompt_token_ids": list(range(60))}


@pytest.fixture(scope="module")
def profile(llm: LLM) -> OpProfile:
    return llm.profile(PROMPT, PARAMS, roof=False)


def test_prefill_and_decode_are_apart(profile: OpProfile) -> None:
    assert (len(profile.prefill.steps), profile.prefill.num_tokens) == (1, 60)
    assert (len(profile.decode.steps), profile.decode.num_tokens) == (4, 4)


def test_operators_are_counted_by_call(profile: OpProfile) -> None:
    counts = {row.opname: row.count for row in profile.decode.by_operator()}

    # 2 layers, 4 steps; gate and up stay apart where a width is no multiple of a panel.
    assert counts["attention"] == 8
    assert counts["linear_u8"] == (2 * 5 + 1) * 4
    assert counts["sample"] == 4


def test_every_layer_has_a_row_and_what_lies_outside_comes_last(profile: OpProfile) -> None:
    assert [row.opname for row in profile.prefill.by_layer()] == ["0", "1", "-"]


def test_rows_add_up_to_the_operators_time(profile: OpProfile) -> None:
    phase = profile.decode
    spent = sum(float(step.op_seconds.sum()) for step in phase.steps) * 1e3

    for rows in (phase.by_operator(), phase.by_layer(), phase.by_name()):
        assert sum(row.total_ms for row in rows) == pytest.approx(spent)
        assert all(row.min_ms <= row.ave_ms <= row.max_ms for row in rows)
        assert all(row.total_ms == pytest.approx(row.ave_ms * row.count) for row in rows)


def test_the_rows_account_for_the_whole_step(profile: OpProfile) -> None:
    for phase in profile.phases:
        assert 0.97 <= phase.coverage <= 1.001
        shares = sum(row.percentage for row in (phase.inputs_row(), *phase.forward_rows()))
        assert shares == pytest.approx(100 * phase.coverage)


def test_the_report_has_dashinfers_sections_and_columns(profile: OpProfile) -> None:
    text = profile.report("en")

    for phase in ("prefill", "decode"):
        assert f"=== {phase}: " in text
    for section in ("reshape", "alloc", "forward", "layers"):
        assert text.count(f"*** {section} ***") == 2
    header = "rank opname count min_ms max_ms ave_ms total_ms percentage".split()
    assert [line.split() for line in text.splitlines()].count(header) == 8


def test_the_data_is_that_of_the_report(profile: OpProfile) -> None:
    data = profile.as_dict()

    assert json.loads(json.dumps(data)) == data
    assert data["decode"]["steps"] == 4
    rows = profile.decode.forward_rows()
    assert [row["opname"] for row in data["decode"]["forward"]] == [row.opname for row in rows]


def test_a_profiled_answer_is_the_same_answer(llm: LLM) -> None:
    plain = llm.generate(PROMPT, PARAMS)[0].outputs[0].token_ids
    with llm.profiling() as recorder:
        profiled = llm.generate(PROMPT, PARAMS)[0].outputs[0].token_ids
    after = len(recorder.steps)
    llm.generate(PROMPT, PARAMS)

    assert profiled == plain
    assert len(recorder.steps) == after == 5


def test_profiles_may_overlap_and_each_sees_its_own_steps(llm: LLM) -> None:
    with llm.profiling() as outer:
        llm.generate(PROMPT, PARAMS)
        inner = llm.profile(PROMPT, PARAMS, roof=False)

    assert (len(outer.steps), len(inner.steps)) == (10, 5)
