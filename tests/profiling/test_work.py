from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.engine.profiler import profiled_ops
from dashinfer_lab.lower.kernel_table import kernel_table
from dashinfer_lab.profiling import WORK, ChunkSpan, OpProfile, ProfiledOp, StepShape, Work
from dashinfer_lab.profiling.achieved import Achieved
from dashinfer_lab.profiling.work import work_of
from tests.model.tiny_artifact import tiny_artifact
from tests.profiling.conftest import PARAMS, PROMPTS, ROOF


def decode_step(position: int, num_partials: int = 0) -> StepShape:
    return StepShape((ChunkSpan(0, position, 1, True, True, 0.0),), 1, num_partials)


def test_every_kernel_of_a_plan_has_its_formula() -> None:
    assert set(kernel_table()) <= set(WORK)


@pytest.mark.parametrize("scheme", ["fp32", "bf16", "a16w8", "a16w8:32", "a16w4", "a8w8", "a8w4"])
def test_decoding_a_token_reads_the_bytes_that_the_plan_says(tmp_path: Path, scheme: str) -> None:
    with LLM(tiny_artifact(tmp_path / "tiny", scheme).directory, threads=1) as llm:
        ops = profiled_ops(llm._runner.plan)
        expected = llm.memory().weight_bytes_per_token

    products = [op for op in ops if op.kernel.startswith("linear")]
    found = [work_of(op, decode_step(7)) for op in products]
    assert sum(work.weight_bytes for work in found if work) == expected


def test_a_product_does_two_operations_for_each_weight_and_row() -> None:
    numbers = {"in_features": 64, "num_panels": 2}
    op = ProfiledOp(
        "linear_f32", "x", 0, constants={"has_bias": False, "has_residual": True}, numbers=numbers
    )
    chunk = ChunkSpan(0, 0, 3, False, True, 0.0)

    work = work_of(op, StepShape((chunk,), 1))

    # Three rows of 64 in, of 32 out and of 32 to add; 32 columns of 64 weights.
    assert work == Work(4 * 64 * 32, 0, 4 * 3 * (64 + 2 * 32), 2 * 3 * 64 * 32)


@pytest.mark.parametrize(("rows", "times_moved"), [(64, 4), (65, 2)])
def test_a_gated_unit_is_counted_where_it_is_computed(rows: int, times_moved: int) -> None:
    numbers = {"in_features": 64, "num_panels": 4, "n": 32}
    step = StepShape((ChunkSpan(0, 0, rows, False, True, 0.0),), 1)
    bias = {"has_bias": False, "has_residual": False}

    def total(gated: str, by_product: str) -> Work:
        unit = {"form": "f32", "by_product": by_product}
        product = ProfiledOp("linear_f32", "x", 0, constants={**bias, "gated": gated})
        kernels = (
            replace(product, numbers=numbers),
            ProfiledOp("swiglu_prepare", "u", 0, constants=unit, numbers=numbers),
        )
        found = [work_of(op, step) for op in kernels]
        return sum((work for work in found if work), Work())

    apart, joined = total("", ""), total("swiglu", "units")
    assert joined.flops == apart.flops
    # Gate and up written and read, or the unit alone; it is written once more, prepared.
    assert apart.activation_bytes - joined.activation_bytes == (4 - times_moved) * 4 * rows * 32


@pytest.mark.parametrize("rows", [64, 65])
def test_rows_that_the_product_prepares_are_counted_once(rows: int) -> None:
    step = StepShape((ChunkSpan(0, 0, rows, False, True, 0.0),), 1)
    product = ProfiledOp(
        "linear_u8", "x", 0, numbers={"in_features": 64, "num_panels": 8, "groups_per_scale": 1},
        constants={
            "has_bias": False, "has_residual": False, "form": "i16", "group": 64,
            "scale_format": "f16", "gated": "swiglu",
        },
    )  # fmt: skip
    unit = ProfiledOp("swiglu_prepare", "u", 0, numbers={"n": 64})
    given = {"form": "i16", "group": 64}

    def total(made: dict[str, int | str], by_product: str) -> Work:
        made = {**(product.constants or {}), **made}
        constants = {**given, "by_product": by_product}
        kernels = replace(product, constants=made), replace(unit, constants=constants)
        return sum((work for op in kernels if (work := work_of(op, step))), Work())

    apart = total({}, "units")
    joined = total({"unit_form": "i16", "unit_group": 64}, "rows")
    assert joined.flops == apart.flops
    # Units as floats are neither written nor read; to 64 rows nothing is other than it was.
    moved = 2 * 4 * rows * 64 if rows > 64 else 0
    assert apart.activation_bytes - joined.activation_bytes == moved


def test_the_head_works_on_rows_of_logits_only() -> None:
    constants = {"has_bias": False, "has_residual": False}
    numbers = {"in_features": 64, "num_panels": 2}
    head = ProfiledOp("linear_f32", "head", None, "num_logit_rows", constants, numbers)
    prompt = StepShape((ChunkSpan(0, 0, 30, False, False, 0.0),), 0)

    assert work_of(head, prompt) == Work()


def test_attention_grows_with_the_position_and_reads_each_key_once() -> None:
    constants = {"head_dim": 16, "heads_per_kv": 3}
    op = ProfiledOp("attention", "a", 0, "num_tokens", constants, {"num_kv_heads": 2}, 256)
    chunk = ChunkSpan(0, 5, 3, False, False, 0.0)

    work = work_of(op, StepShape((chunk,), 0))

    # Rows 5, 6, 7 see 6, 7 and 8 keys; six heads of 16 multiply-add them twice.
    assert work is not None
    assert work.kv_bytes == 8 * 256
    assert work.flops == 4 * 6 * 16 * (6 + 7 + 8)


def test_attention_within_a_window_sees_and_reads_its_keys_alone() -> None:
    constants = {"head_dim": 16, "heads_per_kv": 3, "windowed": True}
    numbers = {"num_kv_heads": 2, "window": 6}
    op = ProfiledOp("attention", "a", 0, "num_tokens", constants, numbers, 256)
    chunk = ChunkSpan(0, 4, 4, False, False, 0.0)

    work = work_of(op, StepShape((chunk,), 0))

    # Rows 4 .. 7 see 5, 6, 6 and 6 keys; the first of them sees key 0.
    assert work is not None
    assert work.kv_bytes == 8 * 256
    assert work.flops == 4 * 6 * 16 * (5 + 6 + 6 + 6)


def test_a_kernel_without_formula_is_named_and_has_no_figures(batch: OpProfile) -> None:
    strange = ProfiledOp("fused_of_tomorrow", "x", None)
    profile = OpProfile((*batch.ops[:-1], strange), batch.steps)

    assert work_of(strange, decode_step(0)) is None
    assert profile.uncounted == ["fused_of_tomorrow"]
    assert "fused_of_tomorrow" in profile.report("zh").splitlines()[-1]
    whole = profile.decode.achieved()
    assert (whole.work, whole.gbs, whole.roof_fraction) == (None, None, None)


def test_operators_and_layers_add_up_to_the_same_work(batch: OpProfile) -> None:
    for phase in batch.phases:
        tables = (phase.achieved_by_operator(), phase.achieved_by_layer())
        sums = [sum((each.work for each in table if each.work), Work()) for table in tables]
        assert sums[0] == sums[1] == phase.achieved().work


def test_the_share_of_the_roof_is_the_least_time_over_the_time(batch: OpProfile) -> None:
    for each in batch.prefill.achieved_by_operator():
        assert each.work is not None
        # The made roof: 20 GB/s and 100 GFLOP/s.
        reading, computing = each.work.num_bytes / 20e9, each.work.flops / 100e9
        assert each.bound == ("memory" if reading >= computing else "compute")
        if each.roof_fraction is not None:
            assert each.roof_fraction == pytest.approx(max(reading, computing) / each.seconds)
    assert batch.prefill.achieved().roof_fraction is not None


def test_a_time_too_short_to_have_done_the_work_has_no_rates() -> None:
    work = Work(weight_bytes=1000, flops=1000)
    short, long = (Achieved("sample", seconds, work, ROOF) for seconds in (8e-8, 1e-5))

    assert (short.gbs, short.gflops, short.roof_fraction) == (None, None, None)
    assert long.gbs == long.gflops == pytest.approx(0.1)
    assert short.intensity == long.intensity == 1


def test_steps_keep_the_shapes_they_had(llm: LLM, batch: OpProfile) -> None:
    assert [step.num_tokens for step in batch.decode.steps][-1] <= len(PROMPTS)
    prompt_tokens = sum(len(prompt["prompt_token_ids"]) for prompt in PROMPTS)
    computed = sum(step.num_tokens for step in batch.steps)
    # The last drawn token of a request is never computed.
    assert computed == prompt_tokens + len(PROMPTS) * ((PARAMS.max_tokens or 0) - 1)
