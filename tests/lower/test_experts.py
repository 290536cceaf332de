"""Mixtures of experts as lowered: one operation a mixture, sizes checked, bytes of a token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine.profiler import profiled_ops
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.serialize import load_graph
from dashinfer_lab.lower import lowered_ops
from dashinfer_lab.lower.check import check_sizes
from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.translate import translate
from dashinfer_lab.profiling import ChunkSpan, StepShape
from dashinfer_lab.profiling.work import work_of
from tests.model.family_cases import CASES
from tests.model.test_families import converted

QWEN2 = next(case for case in CASES if case.name == "qwen2_moe")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return converted(QWEN2, tmp_path_factory.mktemp("experts"), "a16w8")


def translated(artifact: Artifact) -> tuple[list[Op], int]:
    """The graph's operations, and where its mixture of experts is."""
    ops = translate(load_graph(artifact.graph_path, artifact.tensors))
    return ops, next(i for i, op in enumerate(ops) if op.kind == "experts")


def test_shared_expert_and_residual_become_part_of_the_mixture(artifact: Artifact) -> None:
    ops = lowered_ops(artifact)

    (experts,) = [op for op in ops if op.kind == "experts"]
    assert (experts["shared"], experts["residual"], len(experts.inputs)) == (True, True, 5)
    assert not [op for op in ops if op.kind in ("add", "gated")]


@pytest.mark.parametrize(
    ("weight", "changes"),
    [(0, {"n": 112}), (1, {"k": 16}), (2, {"n": 16 * 7}), (2, {"k": 3}), (1, {"group_size": 32})],
    ids=str,
)
def test_matrices_that_the_experts_do_not_share_are_refused(
    artifact: Artifact, weight: int, changes: dict[str, Any]
) -> None:
    ops, place = translated(artifact)
    weights = list(ops[place]["weights"])
    weights[weight] = replace(weights[weight], **changes)
    ops[place] = ops[place].with_attributes(weights=tuple(weights))

    with pytest.raises(ArtifactError, match="experts"):
        check_sizes(ops, artifact.tensors, artifact.config)


@pytest.mark.parametrize("top_k", [0, 8, -1])
def test_more_experts_than_there_are_cannot_be_chosen(artifact: Artifact, top_k: int) -> None:
    ops, place = translated(artifact)
    ops[place] = ops[place].with_attributes(top_k=top_k)

    with pytest.raises(ArtifactError, match=f"chooses {top_k} of 7 experts"):
        check_sizes(ops, artifact.tensors, artifact.config)


def test_a_gate_of_several_logits_is_refused(artifact: Artifact) -> None:
    ops, place = translated(artifact)
    gated = next(i for i, op in enumerate(ops) if op.kind == "gated")
    logits = ops[place].inputs[1]
    ops[gated] = replace(ops[gated], inputs=(ops[gated].inputs[0], logits))

    with pytest.raises(ArtifactError, match="gated by 7 logits"):
        check_sizes(ops, artifact.tensors, artifact.config)


@pytest.mark.parametrize("scheme", ["fp32", "a16w4"])
def test_a_token_reads_the_experts_it_meets_and_no_others(tmp_path: Path, scheme: str) -> None:
    step = StepShape((ChunkSpan(0, 7, 1, True, True, 0.0),), 1, 0)
    with LLM(converted(QWEN2, tmp_path, scheme).directory, threads=1) as llm:
        ops = profiled_ops(llm._runner.plan)
        expected = llm.memory().weight_bytes_per_token
        whole = sum(op.kernel.startswith("expert_linear") for op in ops)

    products = [op for op in ops if op.kernel.startswith(("linear", "expert_linear"))]
    found = [work_of(op, step) for op in products]
    biased = [op for op in products if (op.constants or {}).get("has_bias")]
    biases = sum(4 * op.number("num_panels") * 16 for op in biased)
    assert sum(work.weight_bytes for work in found if work) - biases == expected
    assert whole == 3
