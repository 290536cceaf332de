"""Number formats for weights: schemes, and the arithmetic behind them; knows nothing of files."""

from dashinfer_lab.quantize.instant import (
    QuantizedRows,
    ScaleType,
    dequantize,
    fits_float16,
    quantize_rows,
)
from dashinfer_lab.quantize.layout import (
    ELEMENT_BYTES,
    group_length,
    group_shape,
    panel_shape,
    whole_panels,
)
from dashinfer_lab.quantize.panels import QuantizedPanels, quantize_panels
from dashinfer_lab.quantize.scheme import (
    GROUP_SIZES,
    GROUPED_BITS,
    SCHEMES,
    GroupSize,
    Scheme,
    WeightFormat,
    WeightRole,
)

__all__ = [
    "ELEMENT_BYTES",
    "GROUPED_BITS",
    "GROUP_SIZES",
    "SCHEMES",
    "GroupSize",
    "QuantizedPanels",
    "QuantizedRows",
    "ScaleType",
    "Scheme",
    "WeightFormat",
    "WeightRole",
    "dequantize",
    "fits_float16",
    "group_length",
    "group_shape",
    "panel_shape",
    "quantize_panels",
    "quantize_rows",
    "whole_panels",
]
