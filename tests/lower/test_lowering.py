from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dashinfer_lab.convert import Artifact
from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.graph import StoredTensor
from dashinfer_lab.lower import PlanLimits, lower, lowered_ops
from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.passes import fuse_siblings
from dashinfer_lab.lower.plan import ArenaOperand, TensorOperand
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

LIMITS = PlanLimits(max_tokens=40, max_logit_rows=8, num_threads=2, row_tile=6)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(
        tmp_path_factory.mktemp("lower") / "tiny", "a16w8", tiny_llama(intermediate_size=160)
    )


def test_a_layer_becomes_three_fused_linears_with_their_norms_and_attention(
    artifact: Artifact,
) -> None:
    kinds = [op.kind for op in lowered_ops(artifact) if op.layer == 1]

    assert kinds == [
        *("rmsnorm", "linear", "rope_append", "paged_attention", "linear"),
        *("rmsnorm", "linear", "swiglu", "linear"),
    ]


def test_residuals_are_added_where_the_product_is_written(artifact: Artifact) -> None:
    residual = [op.name for op in lowered_ops(artifact) if op.kind == "linear" and op["residual"]]

    assert residual == [
        f"model.layers.{layer}.{name}"
        for layer in range(2)
        for name in ("self_attn.o_proj", "mlp.down_proj")
    ]


def test_the_stream_of_residuals_stays_in_one_place(artifact: Artifact) -> None:
    plan = lower(artifact, LIMITS)

    written = [
        (op.rows, plan.buffers[op.writes[0]].offset)
        for op in plan.ops
        if op.constants.get("has_residual") or op.kernel == "embedding"
    ]
    assert [rows for rows, _ in written] == ["num_tokens"] * 3 + ["num_logit_rows"] * 2
    assert len(set(written)) == 2


def test_only_wanted_rows_leave_the_last_attention(artifact: Artifact) -> None:
    plan = lower(artifact, LIMITS)

    on_logit_rows = [(op.kernel, op.name) for op in plan.ops if op.rows == "num_logit_rows"]
    layer = "model.layers.1"
    assert on_logit_rows == [
        ("gather_rows", f"{layer}.self_attn.kept"),
        ("gather_rows", "model.layers.0.add_2.kept"),
        ("prepare", f"{layer}.self_attn.o_proj.prepare"),
        ("linear_u8", f"{layer}.self_attn.o_proj"),
        ("rmsnorm_prepare", f"{layer}.post_attention_layernorm"),
        ("linear_u8", f"{layer}.mlp.gate_proj+up_proj"),
        ("swiglu_prepare", f"{layer}.mul_1"),
        ("linear_u8", f"{layer}.mlp.down_proj"),
        ("rmsnorm_prepare", "model.norm"),
        ("linear_u8", "lm_head"),
        ("sample", "sample"),
        ("advance", "advance"),
    ]


def test_siblings_that_do_not_lie_side_by_side_stay_apart(artifact: Artifact) -> None:
    moved = dict(artifact.tensors)
    name = "model.layers.0.self_attn.k_proj.weight"
    moved[name] = replace(moved[name], offset=moved[name].offset + 64)

    fused = fuse_siblings(_unfused(lowered_ops(artifact), artifact.tensors), moved)

    names = [op.name for op in fused if op.kind == "linear" and op.layer == 0]
    assert "model.layers.0.self_attn.q_proj" in names
    assert "model.layers.0.mlp.gate_proj+up_proj" in names
    q, k, v = (next(op for op in fused if op.name.endswith(f"0.self_attn.{n}_proj")) for n in "qkv")
    rope = next(op for op in fused if op.kind == "rope_append")
    assert rope.inputs == (*q.outputs, *k.outputs, *v.outputs)


def _unfused(ops: list[Op], tensors: dict[str, StoredTensor]) -> list[Op]:
    """Split fused linears again."""
    apart: list[Op] = []
    for op in ops:
        if op.kind != "linear":
            apart.append(op)
            continue
        for weight, bias, output in zip(op["weights"], op["biases"], op.outputs, strict=True):
            attributes = {**op.attributes, "weights": (weight,), "biases": (bias,)}
            name = weight.panels.removesuffix(".weight")
            apart.append(Op("linear", name, op.inputs, (output,), attributes, op.layer))
    return apart


def test_weights_of_four_bits_are_fused_alike_and_leave_the_head_to_eight(
    artifact: Artifact, tmp_path: Path
) -> None:
    config = tiny_llama(intermediate_size=160)
    of_four = lower(tiny_artifact(tmp_path / "tiny", "a16w4", config), LIMITS)

    of_eight = Counter(op.kernel for op in lower(artifact, LIMITS).ops)
    assert Counter(op.kernel for op in of_four.ops) == {
        **of_eight,
        "linear_u4": of_eight["linear_u8"] - 1,
        "linear_u8": 1,
    }


def test_siblings_apart_write_the_columns_that_one_linear_would(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = lower(artifact, LIMITS)

    def apart(ops: list[Op], tensors: dict[str, StoredTensor]) -> list[Op]:
        return _unfused(list(ops), tensors)

    monkeypatch.setattr("dashinfer_lab.lower.lowering.fuse_siblings", apart)
    separate = lower(artifact, LIMITS)

    outputs = [
        op.operands["out"]
        for op in separate.ops
        if op.kernel == "linear_u8" and op.layer == 0 and "self_attn" in op.name
    ][:3]
    assert all(isinstance(out, ArenaOperand) for out in outputs)
    assert [out.byte_offset for out in outputs if isinstance(out, ArenaOperand)] == [0, 384, 512]
    kernels = Counter(op.kernel for op in separate.ops) - Counter(op.kernel for op in together.ops)
    assert kernels == {"linear_u8": 6}


def test_weights_are_counted_once_for_a_token(artifact: Artifact) -> None:
    plan = lower(artifact, LIMITS)

    panels_and_groups = sum(
        tensor.num_bytes
        for name, tensor in artifact.tensors.items()
        if not name.startswith(("rope.", "__pad")) and "norm" not in name
    )
    assert plan.weight_bytes_per_token == panels_and_groups


def test_every_tensor_a_plan_names_is_in_the_artifact(artifact: Artifact) -> None:
    plan = lower(artifact, LIMITS)

    operands = [operand for op in plan.ops for operand in op.operands.values()]
    named = {name for o in operands if isinstance(o, TensorOperand) for name in o.names}
    assert named <= set(artifact.tensors)


def test_a_head_size_without_kernels_is_refused_by_name(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "odd", "fp32", tiny_llama(head_dim=10))

    with pytest.raises(UnsupportedModelError, match="head size 10 is not a multiple of 16"):
        lower(artifact, LIMITS)
