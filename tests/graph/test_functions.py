"""The local functions in ONNX Runtime against NumPy: the same weights to the last bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx.checker
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

from dashinfer_lab.graph.functions import DOMAIN, OPSET, local_function
from dashinfer_lab.quantize import GroupSize, dequantize, group_length, quantize_rows
from jit_kernels import panels

SIZES = [(1, 1), (16, 64), (17, 67), (33, 130)]


def _run(name: str, inputs: dict[str, NDArray[Any]], **attributes: int) -> NDArray[np.float32]:
    """Run one function on `inputs`, held as initialisers because NumPy feeds no bfloat16."""
    values = [ir.val(key, const_value=ir.tensor(value, name=key)) for key, value in inputs.items()]
    node = ir.node(name, values, attributes, domain=DOMAIN)
    output = node.outputs[0]
    output.dtype, output.shape = ir.DataType.FLOAT, ir.Shape([attributes["k"], attributes["n"]])
    imports = {"": OPSET, DOMAIN: 1}
    graph = ir.Graph([], [output], nodes=[node], initializers=values, opset_imports=imports)
    model = ir.Model(graph, ir_version=11, functions=[local_function(name)])
    graph.name = name
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, {})[0]


def _gaussian(n: int, k: int) -> NDArray[np.float32]:
    return np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_unpacking_f32_gives_the_transposed_weight(n: int, k: int) -> None:
    rows = _gaussian(n, k)
    weight = _run("UnpackPanelsF32", {"panels": panels.pack_f32(rows)}, k=k, n=n)

    np.testing.assert_array_equal(weight, rows.T)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_unpacking_bf16_gives_the_transposed_weight(n: int, k: int) -> None:
    bits = panels.to_bf16(_gaussian(n, k))
    packed = panels.pack_bf16(bits).view(ml_dtypes.bfloat16)
    weight = _run("UnpackPanelsBF16", {"panels": packed}, k=k, n=n)

    np.testing.assert_array_equal(weight, panels.from_bf16(bits).T)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [32, 64, "row"])
@pytest.mark.parametrize("scale_type", [np.float16, np.float32])
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_dequantising_gives_code_times_scale_plus_minimum(
    n: int, k: int, scale_type: Any, group: GroupSize, bits: int
) -> None:
    rows = _gaussian(n, k).round(2)
    quantized = quantize_rows(rows, group, np.float32, bits)
    assert quantized is not None
    inputs = {
        "panels": (panels.pack_u8 if bits == 8 else panels.pack_u4)(quantized.codes),
        "scale": panels.pack_groups(quantized.scale.astype(scale_type)),
        "minimum": panels.pack_groups(quantized.minimum.astype(scale_type)),
    }
    function = "InstantDequantize" if bits == 8 else "InstantDequantizeU4"
    weight = _run(function, inputs, k=k, n=n, group_size=group_length(k, group))

    rounded = type(quantized)(
        quantized.codes,
        quantized.scale.astype(scale_type),
        quantized.minimum.astype(scale_type),
    )
    np.testing.assert_array_equal(weight, dequantize(rounded, group).T)
