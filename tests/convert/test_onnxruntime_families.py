"""Every family's converted graph in ONNX Runtime, against what transformers computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.checker
import pytest

from tests.convert.test_onnxruntime import Runtime
from tests.expected.families import load_family
from tests.model.family_cases import CASES, NUM_TOKENS, FamilyCase, token_ids
from tests.model.test_families import converted

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param([NUM_TOKENS], id="whole", marks=pytest.mark.slow),
        pytest.param([100, 101, NUM_TOKENS], id="cached"),
    ],
)
def test_the_graph_computes_what_transformers_does(
    tmp_path: Path, case: FamilyCase, cuts: list[int]
) -> None:
    runtime = Runtime(converted(case, tmp_path, "fp32"), NUM_TOKENS)
    ids = np.array(token_ids())
    past, found = runtime.empty(), []
    for start, stop in zip([0, *cuts], cuts, strict=False):
        logits, past = runtime.step(ids[start:stop], start, past)
        found.append(logits)

    assert load_family(case.name).error(np.concatenate(found)).max() <= 1e-4


@each_case
def test_the_quantised_graph_is_valid_onnx(tmp_path: Path, case: FamilyCase) -> None:
    artifact = converted(case, tmp_path, "a16w8")

    onnx.checker.check_model(artifact.graph_path, full_check=True)
