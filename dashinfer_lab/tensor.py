"""Shape and element type of a stored tensor; knows nothing of files or models."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

__all__ = ["SAFETENSORS_DTYPES", "TensorInfo", "numpy_dtype"]

SAFETENSORS_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Element types a safetensors header may name, and what we call them."""

_BEYOND_NUMPY = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def numpy_dtype(name: str) -> np.dtype:
    """Return the NumPy element type called `name`, such as "float32" or "bfloat16"."""
    return _BEYOND_NUMPY[name] if name in _BEYOND_NUMPY else np.dtype(name)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape in elements, outermost first, and element type by name."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def num_elements(self) -> int:
        """Product of the shape."""
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements without padding."""
        return self.num_elements * numpy_dtype(self.dtype).itemsize
