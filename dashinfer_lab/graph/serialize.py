"""Writes a graph as an ONNX file whose initialisers lie in a weights file, and reads it back.

Knows nothing of how the weights file was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.functions import DOMAIN, local_function
from dashinfer_lab.graph.model_graph import ModelGraph
from dashinfer_lab.graph.verify import verify
from dashinfer_lab.graph.weights import StoredTensor

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["IR_VERSION", "PRODUCER", "load_graph", "save_graph"]

# ONNX 1.19 and later; opset 24 needs 12 for none of its operators, and 11 is read more widely.
IR_VERSION = 11
PRODUCER = "dashinfer_lab"

# From safetensors' spelling to ONNX's.
_TYPES = {"F32": "FLOAT", "F16": "FLOAT16", "BF16": "BFLOAT16", "U8": "UINT8"}


def save_graph(
    graph: ModelGraph,
    path: Path,
    weights_file: str,
    tensors: Mapping[str, StoredTensor],
    metadata: Mapping[str, str],
) -> None:
    """Write `graph` to `path` with initialisers at `tensors` in `weights_file` beside it.

    Gives every initialiser of `graph` its type and place. `path`'s directory must hold the file.
    """
    import onnx.checker
    import onnx_ir as ir

    for name, value in graph.ir.initializers.items():
        tensor = tensors[name]
        dtype = value.dtype = ir.DataType[_TYPES[tensor.dtype]]
        value.const_value = ir.ExternalTensor(
            weights_file,
            tensor.offset,
            tensor.num_bytes,
            dtype,
            shape=ir.Shape(tensor.shape),
            name=name,
            base_dir=path.parent,
        )
    used = sorted({node.op_type for node in graph.ir if node.domain == DOMAIN})
    model = ir.Model(
        graph.ir,
        ir_version=IR_VERSION,
        producer_name=PRODUCER,
        producer_version=metadata.get("tool_version"),
        functions=[local_function(name) for name in used],
        metadata_props=dict(metadata),
    )
    verify(model)
    path.write_bytes(ir.to_proto(model).SerializeToString(deterministic=True))
    onnx.checker.check_model(path, full_check=True)


def load_graph(path: Path, tensors: Mapping[str, StoredTensor]) -> ir.Model:
    """Read the ONNX file at `path` and check that its initialisers lie at `tensors`.

    Raises ArtifactError where the file cannot be read or names another place.
    """
    import onnx
    import onnx_ir as ir

    try:
        model = ir.from_proto(onnx.load(path, load_external_data=False))
    except Exception as error:  # protobuf's and onnx_ir's errors share no base of their own
        raise ArtifactError(f"{path} is not an ONNX file ({error}); re-convert") from error
    for name, value in model.graph.initializers.items():
        held = value.const_value
        if not isinstance(held, ir.ExternalTensor) or name not in tensors:
            raise ArtifactError(f"{path}: tensor {name!r} is not in the weights file; re-convert")
        tensor = tensors[name]
        place = (held.offset, held.length, tuple(held.shape.numpy()), held.dtype.name)
        expected = (tensor.offset, tensor.num_bytes, tensor.shape, _TYPES.get(tensor.dtype))
        if place != expected:
            raise ArtifactError(
                f"{path}: tensor {name!r} is {place} in the graph, {expected} in the weights "
                "file; the files belong to different conversions: re-convert"
            )
    try:
        verify(model)
    except ArtifactError as error:
        raise ArtifactError(
            f"{path}: {error}; re-convert the model, or upgrade if a newer version wrote it"
        ) from error
    return model
