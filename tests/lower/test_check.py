"""A converted model whose sizes lie is refused before a kernel believes them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from dashinfer_lab.convert import Artifact
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.serialize import load_graph
from dashinfer_lab.lower import lowered_ops
from dashinfer_lab.lower.check import check_sizes
from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.translate import translate
from tests.model.tiny_artifact import tiny_artifact, tiny_llama


@pytest.fixture(scope="module", params=["a16w8", "a16w4", "bf16", "fp32"])
def artifact(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Artifact:
    directory = tmp_path_factory.mktemp("check") / "tiny"
    return tiny_artifact(directory, request.param, tiny_llama(attention_bias=True))


@pytest.fixture
def ops(artifact: Artifact) -> list[Op]:
    return translate(load_graph(artifact.graph_path, artifact.tensors))


def _changed(ops: list[Op], kind: str, **attributes: Any) -> list[Op]:
    """`ops` with other attributes for the first of a kind; a dict changes its weight."""
    position = next(i for i, op in enumerate(ops) if op.kind == kind)
    for name, value in attributes.items():
        if name == "weight" and isinstance(value, dict):
            attributes = {name: replace(ops[position]["weight"], **value)}
        elif name == "weights":
            attributes = {name: (replace(ops[position]["weights"][0], **value),)}
    return [*ops[:position], ops[position].with_attributes(**attributes), *ops[position + 1 :]]


def test_what_convert_writes_passes(artifact: Artifact, ops: list[Op]) -> None:
    check_sizes(ops, artifact.tensors, artifact.config)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("linear", {"weights": {"k": 84000}}),
        ("linear", {"weights": {"n": 96000}}),
        ("linear", {"weights": {"k": 0}}),
        ("linear", {"weights": {"n": -16}}),
        ("linear", {"weights": {"panels": "model.norm.weight"}}),
        ("linear", {"biases": ("model.norm.weight",)}),
        ("embedding", {"weight": {"n": 330}}),
        ("embedding", {"weight": {"k": 840}}),
        ("rmsnorm", {"weight": "rope.cos"}),
        ("rmsnorm", {"weight": "absent"}),
        ("rotary", {"num_heads": 600}),
        ("rotary", {"cos": "model.norm.weight"}),
        ("attention", {"num_heads": 600}),
        ("attention", {"num_kv_heads": 1}),
        ("attention", {"head_dim": 32}),
    ],
    ids=str,
)
def test_an_operation_that_does_not_fit_is_named(
    artifact: Artifact, ops: list[Op], kind: str, attributes: dict[str, Any]
) -> None:
    with pytest.raises(ArtifactError, match=kind):
        check_sizes(_changed(ops, kind, **attributes), artifact.tensors, artifact.config)


@pytest.mark.parametrize("size", [0, 1, 48, -64])
def test_groups_of_no_known_size_are_refused(tmp_path: Path, size: int) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", "a16w8")
    ops = translate(load_graph(artifact.graph_path, artifact.tensors))
    changed = _changed(ops, "linear", weights={"group_size": size})

    with pytest.raises(ArtifactError, match=f"groups of {size}"):
        check_sizes(changed, artifact.tensors, artifact.config)


def test_rows_of_four_bits_are_not_looked_up(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", "a16w4")
    ops = translate(load_graph(artifact.graph_path, artifact.tensors))
    first = next(op for op in ops if op.kind == "linear")["weights"][0]
    position = next(i for i, op in enumerate(ops) if op.kind == "embedding")
    ops[position] = ops[position].with_attributes(weight=first)

    with pytest.raises(ArtifactError, match="looks up rows of 4-bit weights"):
        check_sizes(ops, artifact.tensors, artifact.config)


@pytest.mark.parametrize(
    "changes",
    [
        {"context_length": 513},
        {"vocab_size": 332},
        {"num_layers": 1},
        {"num_layers": 3},
        {"num_heads": 12},
        {"num_kv_heads": 6},
        {"head_dim": 32},
    ],
    ids=str,
)
def test_another_configuration_is_refused(
    artifact: Artifact, ops: list[Op], changes: dict[str, int]
) -> None:
    with pytest.raises(ArtifactError, match="re-convert"):
        check_sizes(ops, artifact.tensors, replace(artifact.config, **changes))


def test_a_value_that_no_operation_makes_is_refused(artifact: Artifact, ops: list[Op]) -> None:
    position = next(i for i, op in enumerate(ops) if op.kind == "linear")
    ops[position] = replace(ops[position], inputs=("rope.cos",))

    with pytest.raises(ArtifactError, match="'rope.cos', which no operation makes"):
        check_sizes(ops, artifact.tensors, artifact.config)


def test_attention_twice_in_a_layer_is_refused(artifact: Artifact, ops: list[Op]) -> None:
    ops = [replace(op, layer=0) for op in ops]

    with pytest.raises(ArtifactError, match=r"attends in layers \[0, 0\]"):
        check_sizes(ops, artifact.tensors, artifact.config)


def test_an_attribute_of_another_kind_is_refused(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", "fp32")
    model = onnx.load(artifact.graph_path, load_external_data=False)
    node = next(node for node in model.graph.node if node.op_type == "UnpackPanelsF32")
    attribute = next(each for each in node.attribute if each.name == "k")
    attribute.CopyFrom(onnx.helper.make_attribute("k", "wide"))
    content = model.SerializeToString()
    artifact.graph_path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    changed = replace(artifact, metadata={**artifact.metadata, "graph_sha256": digest})

    with pytest.raises(ArtifactError, match="a node is not as `convert` writes it"):
        lowered_ops(changed)
