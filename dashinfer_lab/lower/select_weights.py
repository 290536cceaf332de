"""What kernels need to know of a weight: operands, the scales' format, the groups of inputs."""

from __future__ import annotations

from collections.abc import Mapping

from dashinfer_lab.lower.ops import Weight
from dashinfer_lab.lower.plan import NothingOperand, Operand, TensorOperand
from dashinfer_lab.quantize import GROUP_SIZES, GROUPED_BITS

__all__ = ["activation_form", "activation_group", "scale_format", "weight_operands"]

_LARGEST_ACTIVATION_GROUP = 256


def weight_operands(weight: Weight) -> dict[str, Operand]:
    """Panels, scale and minimum, as kernels name them."""
    operands: dict[str, Operand] = {"panels": TensorOperand((weight.panels,))}
    for name, tensor in (("scale", weight.scale), ("minimum", weight.minimum)):
        operands[name] = TensorOperand((tensor,)) if tensor else NothingOperand()
    return operands


def scale_format(scale_formats: Mapping[str, str], weight: Weight) -> str:
    """The format of a weight's scales, "f16" or "f32"."""
    return scale_formats[weight.scale] if weight.scale else "f32"


def activation_form(weight: Weight) -> str:
    """How rows are prepared for `weight`: see `jit_kernels.activation_layout`."""
    if weight.format not in GROUPED_BITS:
        return "f32"
    if weight.activation_bits == 16:
        return "i16"
    return "i7" if weight.format == "u8" else "i8"


def activation_group(weight: Weight) -> int:
    """Elements of k quantised together; 0 for float inputs.

    The weight's group, at most 256; a whole row, whatever its length, is cut every 256.
    """
    if weight.format not in GROUPED_BITS:
        return 0
    if weight.group_size not in GROUP_SIZES:
        return _LARGEST_ACTIVATION_GROUP
    return min(weight.group_size, _LARGEST_ACTIVATION_GROUP)
