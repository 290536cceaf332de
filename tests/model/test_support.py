"""One test a cell of the table of models, formats and instruction sets (`models/support`).

What this processor cannot run is skipped, never counted as proven.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dashinfer_lab import LLM
from dashinfer_lab.convert import Artifact
from dashinfer_lab.hub import model_config
from dashinfer_lab.lower.kernel_table import kernel_table
from dashinfer_lab.lower.lowering import lower
from dashinfer_lab.lower.plan import PlanLimits, PlannedOp
from dashinfer_lab.models import Cell, formats_of, supported_cells, supported_models
from jit_kernels.isa import ISA_NAMES, Isa, record, runnable
from jit_kernels.kernel import Constant
from jit_kernels.kernels.linear_tiles import row_tile
from tests.convert.test_onnxruntime import Runtime
from tests.expected.families import load_family
from tests.model.family_cases import CASES, NUM_TOKENS, FamilyCase, token_ids
from tests.model.test_families import converted

QUICK = "llama"
_BEST = next(name for name in ISA_NAMES if runnable(record(name)))
_SHOWN_BY = {
    "baichuan": "baichuan 2, 13B",
    "gemma3_text": "gemma3",
    "mistral": "mistral within a window",
    "qwen2": "qwen2 within a window from layer 1 on",
}
"""Cases of models of which the first case is not the one with most peculiarities."""

# Of a row's largest logit. ONNX Runtime computes with the same stored weights, and neither rounds
# activations nor keys and values: 16 bits of activations move logits by 3e-4 at most, 8 by 5e-2 and
# 7 by 1.3e-1, int8 keys and values by 3.3e-2. A wrong layout or angle moves them by 0.5 and more.
TOLERANCES = {
    "fp32": 1e-4, "bf16": 1e-4, "a16w8": 1e-3, "a16w4": 1e-3, "a8w8": 0.25, "a8w4": 0.1,
    "kv_bf16": 0.02, "kv_int8": 0.07,
}  # fmt: skip
# A row that meets another expert, where two are nearly as good, is another row.
CHOSEN_OTHERWISE = {"a8w8": 0.15, "a8w4": 0.08, "kv_bf16": 0.02, "kv_int8": 0.05}

Reference = tuple[Artifact, NDArray[np.float32]]


def case_of(model_type: str) -> FamilyCase:
    """The tiny checkpoint that stands for a model."""
    name = _SHOWN_BY.get(model_type)
    return next(
        case
        for case in CASES
        if case.name == name
        or (name is None and model_config(case.whole_config()).model_type == model_type)
    )


def _marks(cell: Cell) -> list[pytest.MarkDecorator]:
    is_quick = cell.model_type == QUICK and cell.isa == _BEST and not cell.format.startswith("a8")
    rare = pytest.mark.slow if cell.isa == "avx2" else pytest.mark.matrix
    return [pytest.mark.isa(cell.isa), *([] if is_quick else [rare])]


def each_cell(proof: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "cell",
        [
            pytest.param(cell, marks=_marks(cell), id=f"{cell.model_type}-{cell.format}-{cell.isa}")
            for cell in supported_cells()
            if cell.proof == proof
        ],
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Reference]:
    """A model's artifact in a scheme, and its graph's logits in ONNX Runtime, made once."""

    @lru_cache
    def made(model_type: str, scheme: str) -> Reference:
        directory = tmp_path_factory.mktemp(model_type)
        artifact = converted(case_of(model_type), directory, scheme)
        runtime = Runtime(artifact, NUM_TOKENS)
        return artifact, runtime.step(np.array(token_ids()), 0, runtime.empty())[0]

    return made


@each_cell("runs")
def test_logits_are_right(
    cell: Cell, reference: Callable[[str, str], Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not runnable(record(cell.isa)):
        pytest.skip(f"this processor has no {cell.isa}")
    monkeypatch.setenv("JIT_KERNELS_ISA", cell.isa)
    scheme, kv_format = formats_of(cell.format)
    artifact, expected = reference(cell.model_type, scheme)

    with LLM(artifact.directory, threads=2, kv_cache_dtype=kv_format) as llm:
        logits = llm.logits(token_ids())

    errors = np.abs(logits - expected).max(axis=1) / np.abs(expected).max(axis=1)
    case = case_of(cell.model_type)
    others = CHOSEN_OTHERWISE.get(cell.format, 0) if case.has_experts else 0
    assert np.quantile(errors, 1 - others) <= TOLERANCES[cell.format]
    if cell.format == "fp32":
        assert load_family(case.name).error(logits).max() <= TOLERANCES["fp32"]


def assembly(op: PlannedOp, isa: Isa) -> str:
    known = {"row_tile": row_tile(isa), **op.constants}
    wanted = kernel_table()[op.kernel].constants
    return _shown(op.kernel, tuple((it, known[it]) for it in sorted(wanted) if it in known), isa)


@lru_cache
def _shown(kernel: str, constants: tuple[tuple[str, Constant], ...], isa: Isa) -> str:
    return kernel_table()[kernel].show("asm", isa, **dict(constants))


@each_cell("emitted")
def test_code_is_emitted_whole(tmp_path: Path, cell: Cell) -> None:
    """Every kernel of the model's program, as assembly: in vectors, and without a library."""
    scheme, kv_format = formats_of(cell.format)
    artifact = converted(case_of(cell.model_type), tmp_path, scheme)
    isa = record(cell.isa)
    plan = lower(artifact, PlanLimits(64, 64, 2, row_tile(isa), kv_format))

    assert any(op.kernel.startswith("linear") for op in plan.ops)
    for op in plan.ops:
        code = assembly(op, isa)
        assert re.findall(r"^\s*blr?\s+\S+", code, re.MULTILINE) == [], op.kernel
        if op.kernel.startswith(("linear", "attention_", "expert_linear")):
            assert re.search(r"\b(?:fmla|[su]mlal2?)\s+v\d+\.[24]", code), op.kernel


def test_every_model_has_a_case() -> None:
    found = {name: model_config(case_of(name).whole_config()) for name in supported_models()}

    assert {name: config.model_type for name, config in found.items()} == {
        name: name for name in found
    }
