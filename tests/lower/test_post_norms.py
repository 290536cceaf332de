"""Norms of what a block adds become one operation with the sum."""

from __future__ import annotations

from pathlib import Path

from dashinfer_lab.lower import PlanLimits, lower, lowered_ops
from tests.model.family_cases import CASES
from tests.model.test_families import converted

LIMITS = PlanLimits(max_tokens=40, max_logit_rows=8, num_threads=2, row_tile=6)


def test_a_block_is_added_where_it_is_normalised(tmp_path: Path) -> None:
    glm4 = next(case for case in CASES if case.config["model_type"] == "glm4")
    artifact = converted(glm4, tmp_path, "fp32")
    kinds = [op.kind for op in lowered_ops(artifact) if op.layer == 1]
    plan = lower(artifact, LIMITS)
    stream = [op for op in plan.ops if op.kernel in ("embedding", "rmsnorm_add")]

    assert kinds == [
        *("rmsnorm", "linear", "rope_append", "paged_attention", "linear", "norm_add"),
        *("rmsnorm", "linear", "linear", "swiglu", "linear", "norm_add"),  # gates fill no panel
    ]
    assert [op.rows for op in stream] == ["num_tokens"] * 3 + ["num_logit_rows"] * 2
    assert len({(op.rows, plan.buffers[op.writes[0]].offset) for op in stream}) == 2


def test_whole_norms_of_queries_and_keys_are_taken_where_these_lie(tmp_path: Path) -> None:
    olmo2 = next(case for case in CASES if case.config["model_type"] == "olmo2")
    artifact = converted(olmo2, tmp_path, "fp32")
    kinds = [op.kind for op in lowered_ops(artifact) if op.layer == 1]
    plan = lower(artifact, LIMITS)
    norms = [op for op in plan.ops if op.kernel == "rmsnorm" and op.layer == 1]

    assert kinds == [
        *("linear", "rmsnorm", "rmsnorm", "rope_append", "paged_attention", "linear", "norm_add"),
        *("linear", "linear", "swiglu", "linear", "norm_add"),
    ]
    assert [op.name.rpartition(".")[2] for op in norms] == ["q_norm", "k_norm"]
    assert [op.operands["x"] == op.operands["out"] for op in norms] == [True, True]
    assert [op.operands["n"] for op in norms] == [4 * 32, 2 * 32]
