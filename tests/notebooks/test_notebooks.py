"""Every notebook runs whole on the embedded model, and is committed without outputs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@each_notebook
def test_it_is_committed_without_outputs(path: Path) -> None:
    stained = [cell for cell in cells(path, "code") if cell["outputs"] or cell["execution_count"]]

    assert stained == []


@each_notebook
def test_its_cells_are_few_and_short_and_the_last_one_asserts(path: Path) -> None:
    code = [source(cell) for cell in cells(path, "code")]

    assert len(code) <= 12
    assert [len(text.splitlines()) for text in code if len(text.splitlines()) > 13] == []
    assert "assert " in code[-1]


@each_notebook
def test_it_speaks_english_and_chinese(path: Path) -> None:
    prose = [source(cell) for cell in cells(path, "markdown")]

    assert [text for text in prose if not any("\u4e00" <= c <= "\u9fff" for c in text)] == []


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Jupyter's own, on its event loops
@each_notebook
def test_it_runs_from_top_to_bottom(
    path: Path, embedded_gguf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("DASHINFER_LAB_EMBEDDED", str(embedded_gguf))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(path.parents[1]), *sys.path]))
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(path, as_version=4)

    nbclient.NotebookClient(
        notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
