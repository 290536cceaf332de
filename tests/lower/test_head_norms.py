"""Norms of queries and keys become part of the operation that turns them, or are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashinfer_lab.convert import Artifact
from dashinfer_lab.errors import ArtifactError, UnsupportedModelError
from dashinfer_lab.graph.serialize import load_graph
from dashinfer_lab.lower import lowered_ops
from dashinfer_lab.lower.check import check_sizes
from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.passes import fuse_rope
from dashinfer_lab.lower.translate import translate
from tests.model.tiny_artifact import tiny_artifact, tiny_llama


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    directory = tmp_path_factory.mktemp("norms") / "tiny"
    return tiny_artifact(directory, "a16w8", tiny_llama(model_type="qwen3"))


@pytest.fixture
def ops(artifact: Artifact) -> list[Op]:
    return translate(load_graph(artifact.graph_path, artifact.tensors))


def position_of(ops: list[Op], kind: str) -> int:
    return next(i for i, op in enumerate(ops) if op.kind == kind)


def test_norms_and_rotation_are_one_operation(artifact: Artifact) -> None:
    kinds = [op.kind for op in lowered_ops(artifact)]
    rope = next(op for op in lowered_ops(artifact) if op.kind == "rope_append")

    assert kinds[1:5] == ["rmsnorm", "linear", "rope_append", "paged_attention"]
    assert "head_norm" not in kinds
    assert rope["q_weight"] == "model.layers.0.self_attn.q_norm.weight"
    assert rope["k_weight"] == "model.layers.0.self_attn.k_norm.weight"


@pytest.mark.parametrize(
    "attributes", [{"num_heads": 5}, {"weight": "model.norm.weight"}, {"weight": "absent"}], ids=str
)
def test_a_norm_that_does_not_fit_is_named(
    artifact: Artifact, ops: list[Op], attributes: dict[str, object]
) -> None:
    position = position_of(ops, "head_norm")
    ops[position] = ops[position].with_attributes(**attributes)

    with pytest.raises(ArtifactError, match="head_norm"):
        check_sizes(ops, artifact.tensors, artifact.config)


def test_queries_normalised_otherwise_than_keys_are_refused(ops: list[Op]) -> None:
    position = position_of(ops, "head_norm")
    ops[position] = ops[position].with_attributes(eps=0.5)

    with pytest.raises(UnsupportedModelError, match="unlike each other"):
        fuse_rope(ops)


def test_queries_alone_normalised_are_refused(ops: list[Op]) -> None:
    norm = ops.pop(position_of(ops, "head_norm"))
    position = position_of(ops, "rotary")
    ops[position] = replace(ops[position], inputs=norm.inputs)

    with pytest.raises(UnsupportedModelError, match="unlike each other"):
        fuse_rope(ops)


def test_normalised_queries_that_something_else_reads_are_refused(ops: list[Op]) -> None:
    norm = ops[position_of(ops, "head_norm")]
    ops.append(Op("add", "model.layers.0.more", (norm.outputs[0],) * 2, ("more",)))

    with pytest.raises(UnsupportedModelError, match="read elsewhere"):
        fuse_rope(ops)
