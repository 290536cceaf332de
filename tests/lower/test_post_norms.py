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
    assert len(stream) == 5
    assert len({plan.buffers[op.writes[0]].offset for op in stream}) == 1
