"""Which formats every model runs in on which machines, and the test that proves each; runs nothing.

A cell is a model, a format and an instruction set. Its test's id follows from the three, so that a
table is made from the registry alone; `tests/model/test_support.py` holds these tests, and
`tests/architecture/test_support.py` that pytest finds every one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from dashinfer_lab.models.registry import supported_models
from dashinfer_lab.quantize import SCHEMES

__all__ = ["FORMATS", "ISAS", "PROOFS", "Cell", "Proof", "formats_of", "supported_cells"]

Proof = Literal["runs", "emitted"]
"""What a test shows: logits that are right, or code that nobody has run."""

_KV: Final = "kv_"
FORMATS: Final = (*SCHEMES, f"{_KV}bf16", f"{_KV}int8")
"""Formats of weights, and of keys and values beside weights in fp32."""
PROOFS: Final[dict[str, Proof]] = {
    "x86-64": "runs", "avx2": "runs", "avx512": "runs", "neon": "emitted"
}  # fmt: skip
ISAS: Final = tuple(PROOFS)
_TESTS: Final[dict[Proof, str]] = {
    "runs": "tests/model/test_support.py::test_logits_are_right",
    "emitted": "tests/model/test_support.py::test_code_is_emitted_whole",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One model in one format on one instruction set."""

    model_type: str
    format: str
    isa: str
    proof: Proof

    @property
    def test(self) -> str:
        """Pytest's id of the test that proves it."""
        return f"{_TESTS[self.proof]}[{self.model_type}-{self.format}-{self.isa}]"


def formats_of(name: str) -> tuple[str, str]:
    """Return the scheme of the weights and the format of keys and values of one of `FORMATS`."""
    kv_format = name.removeprefix(_KV)
    return (name, "fp32") if kv_format == name else ("fp32", kv_format)


def supported_cells(model_type: str | None = None) -> Iterator[Cell]:
    """Yield every cell, of all models or of one, in the tables' order."""
    for model in supported_models() if model_type is None else (model_type,):
        for name in FORMATS:
            for isa, proof in PROOFS.items():
                yield Cell(model, name, isa, proof)
