"""The check of a graph names the node and what is wrong with it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.verify import verify
from dashinfer_lab.models import build_graph
from dashinfer_lab.quantize import Scheme
from tests.convert.memory_checkpoint import tiny_config


def _model() -> ir.Model:
    graph = build_graph(tiny_config(num_layers=1), Scheme.parse("fp32")).ir
    return ir.Model(graph, ir_version=11)


def _node(model: ir.Model, name: str) -> ir.Node:
    return next(node for node in model.graph if node.name == name)


def test_a_graph_as_built_passes() -> None:
    verify(_model())


def test_an_operator_that_cannot_run_is_named() -> None:
    model = _model()
    _node(model, "model.layers.0.mlp.gate_proj.silu").op_type = "Elu"

    with pytest.raises(ArtifactError, match=r"'model.layers.0.mlp.gate_proj.silu' is .* Elu"):
        verify(model)


def test_a_missing_attribute_is_named() -> None:
    model = _model()
    del _node(model, "model.layers.0.self_attn").attributes["kv_num_heads"]

    with pytest.raises(ArtifactError, match=r"'model.layers.0.self_attn' .*'kv_num_heads'"):
        verify(model)


def test_a_wrong_number_of_inputs_is_named() -> None:
    model = _model()
    _node(model, "lm_head").resize_inputs(1)

    with pytest.raises(ArtifactError, match=r"'lm_head' \(MatMul\) has 1 inputs and 1 outputs"):
        verify(model)


def test_nodes_out_of_order_are_refused() -> None:
    model = _model()
    norm = _node(model, "model.norm")
    model.graph.remove(norm)
    model.graph.append(norm)

    with pytest.raises(ArtifactError, match=r"'lm_head' reads \['model.norm'\]"):
        verify(model)


def test_a_value_made_twice_is_refused() -> None:
    model = _model()
    _node(model, "model.norm").outputs[0].name = "model.layers.0.add_2"

    with pytest.raises(ArtifactError, match=r"'model.norm' makes \['model.layers.0.add_2'\]"):
        verify(model)
