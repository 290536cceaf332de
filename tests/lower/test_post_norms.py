"""Norms of what a block adds become one operation with the sum."""

from __future__ import annotations

from pathlib import Path

from dashinfer_lab.lower import PlanLimits, lower, lowered_ops
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

LIMITS = PlanLimits(max_tokens=40, max_logit_rows=8, num_threads=2, row_tile=6)


def test_a_block_is_added_where_it_is_normalised(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", "fp32", tiny_llama(model_type="glm4"))
    kinds = [op.kind for op in lowered_ops(artifact) if op.layer == 1]
    plan = lower(artifact, LIMITS)
    stream = [op for op in plan.ops if op.kernel in ("embedding", "rmsnorm_add")]

    assert kinds == [
        *("rmsnorm", "linear", "rope_append", "paged_attention", "linear", "norm_add"),
        *("rmsnorm", "linear", "swiglu", "linear", "norm_add"),
    ]
    assert len(stream) == 5
    assert len({plan.buffers[op.writes[0]].offset for op in stream}) == 1
