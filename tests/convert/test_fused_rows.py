"""Weights that are some rows of a tensor: found, read in order, and named when wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab.convert.converter import convert
from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.graph.weights import FusedRows, WeightDeclaration
from jit_kernels.panels import unpack_f32
from tests.convert.memory_checkpoint import MemoryCheckpoint
from tests.model.family_cases import CASES, HEAD_DIM, HEADS, KV_HEADS, FamilyCase

PHI3, INTERNLM2 = (
    next(case for case in CASES if case.name == name) for name in ("phi3", "internlm2")
)


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (1, 2), (1, 5), (3, 6), (4, 4)])
def test_rows_come_in_order_whatever_block_is_asked_for(start: int, stop: int) -> None:
    tensor = np.arange(15)  # groups of 5, of which rows 1 and 2 are the weight
    fused = FusedRows("any", 15, 1, 2, 5)
    declared = WeightDeclaration("part", (6, 1), "linear", "f32", 64, fused)
    weight = np.array([1, 2, 6, 7, 11, 12])

    np.testing.assert_array_equal(tensor[declared.rows(start, stop)], weight[start:stop])


def _checkpoint(case: FamilyCase) -> MemoryCheckpoint:
    return MemoryCheckpoint(case.whole_config(), dict(case.tensors()))


def test_keys_are_taken_from_between_the_queries(tmp_path: Path) -> None:
    checkpoint = _checkpoint(INTERNLM2)
    artifact = convert(checkpoint, tmp_path / "model", "fp32")
    whole = checkpoint.tensors["model.layers.1.attention.wqkv.weight"]
    grouped = whole.reshape(KV_HEADS, HEADS // KV_HEADS + 2, HEAD_DIM, -1)

    keys = unpack_f32(artifact.tensor("model.layers.1.attention.wqkv.k.weight"), 64)

    np.testing.assert_array_equal(keys, grouped[:, -2].reshape(KV_HEADS * HEAD_DIM, -1))


def test_a_missing_fused_tensor_is_named_once(tmp_path: Path) -> None:
    checkpoint = _checkpoint(PHI3)
    del checkpoint.tensors["model.layers.0.self_attn.qkv_proj.weight"]

    with pytest.raises(
        CheckpointError, match="1 tensors are missing: model.layers.0.self_attn.qkv_proj.weight$"
    ):
        convert(checkpoint, tmp_path / "model", "fp32")


def test_a_fused_tensor_of_another_shape_is_named_once(tmp_path: Path) -> None:
    checkpoint = _checkpoint(PHI3)
    name = "model.layers.0.mlp.gate_up_proj.weight"
    checkpoint.tensors[name] = checkpoint.tensors[name][:-1]

    with pytest.raises(
        CheckpointError, match=r"gate_up_proj.weight is \[341, 72\] float32"
    ) as told:
        convert(checkpoint, tmp_path / "model", "fp32")
    assert str(told.value).count("gate_up_proj") == 1
