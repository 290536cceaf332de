"""The head of Baichuan 2: every row divided by its length when it is converted."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dashinfer_lab.convert.converter import convert
from jit_kernels.panels import unpack_f32
from tests.convert.memory_checkpoint import MemoryCheckpoint
from tests.model.family_cases import CASES, VOCAB


def test_rows_of_the_head_have_length_1_and_rows_of_zeros_stay(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name.startswith("baichuan 2"))
    tensors = dict(case.tensors())
    tensors["lm_head.weight"][5] = 0
    artifact = convert(MemoryCheckpoint(case.whole_config(), tensors), tmp_path / "model", "fp32")

    rows = unpack_f32(artifact.tensor("lm_head.weight"), VOCAB)

    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert not rows[5].any()
    # Each of 96 elements is rounded once.
    np.testing.assert_allclose(np.delete(lengths, 5), 1, rtol=2.0**-24)
    stored, given = rows[7] / rows[7, 0], tensors["lm_head.weight"][7]
    np.testing.assert_allclose(stored, given / given[0], rtol=1e-6)
