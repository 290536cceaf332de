"""The table of models, formats and instruction sets: every cell's test is one that pytest finds."""

from __future__ import annotations

import subprocess
import sys

from dashinfer_lab.models import FORMATS, ISAS, formats_of, supported_cells, supported_models
from jit_kernels.isa import ISA_NAMES
from jit_kernels.kv_layout import KV_FORMATS
from tests.architecture.source_tree import ROOT


def test_every_test_that_a_cell_names_is_collected() -> None:
    named = [cell.test for cell in supported_cells()]
    files = sorted({name.partition("::")[0] for name in named})

    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=100,
    ).stdout.splitlines()  # fmt: skip

    assert [name for name in named if name not in collected] == []
    assert len(set(named)) == len(named)


def test_there_is_a_cell_for_every_model_format_and_instruction_set() -> None:
    cells = {(cell.model_type, cell.format, cell.isa) for cell in supported_cells()}

    assert sorted(ISAS) == sorted(ISA_NAMES)
    assert {formats_of(name)[1] for name in FORMATS} == set(KV_FORMATS)
    assert cells == {
        (model, name, isa) for model in supported_models() for name in FORMATS for isa in ISAS
    }


def test_code_that_nobody_ran_is_not_said_to_run() -> None:
    assert {cell.isa for cell in supported_cells() if cell.proof == "emitted"} == {"neon"}
    assert all("emitted" in cell.test for cell in supported_cells("llama") if cell.isa == "neon")
