"""Every notebook runs whole on the embedded model, and is committed without outputs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.conftest import JUPYTER_FOLDERS

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


@each_notebook
def test_it_begins_with_the_same_guarded_install(path: Path) -> None:
    assert source(cells(path, "code")[0]) == INSTALL
    assert any("version" in source(cell) for cell in cells(path, "code")[1:3])


@pytest.mark.notebook
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(900)  # beside others who keep the processors busy; alone it takes a minute
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Jupyter's own, on its event loops
@pytest.mark.parametrize("ipywidgets", ["with ipywidgets", "without"])
@each_notebook
def test_it_runs_from_top_to_bottom_wherever_it_lies(
    path: Path,
    ipywidgets: str,
    embedded_gguf: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("DASHINFER_LAB_EMBEDDED", str(embedded_gguf))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(path.parents[1]), *sys.path]))
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    for name in JUPYTER_FOLDERS:
        monkeypatch.setenv(name, str(tmp_path / name))
    workspace = tmp_path / "mnt" / "workspace"
    workspace.mkdir(parents=True)
    copy = shutil.copy(path, workspace)
    notebook = nbformat.read(copy, as_version=4)
    if ipywidgets == "without":
        hide = nbformat.v4.new_code_cell("import sys; sys.modules['ipywidgets'] = None")
        notebook.cells.insert(0, hide)

    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": workspace}}
    ).execute()


QUICKSTART = Path(__file__).parents[2] / "notebooks" / "00_quickstart.ipynb"
INSTALL, REPORT, PULL = (source(cell) for cell in cells(QUICKSTART, "code")[:3])


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip is told where the package is not installed."""
    told: list[list[str]] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: told.append(command))
    return told


def _installed(folder: Path, name: str, version: str) -> None:
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_install_cell_leaves_torch_transformers_and_numpy(
    pip: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workspace = tmp_path / "mnt" / "workspace"
    workspace.mkdir(parents=True)
    monkeypatch.chdir(workspace)
    torch = "2.3.1+cu121"
    try:
        torch = version("torch")  # the oracles' environment has it
    except PackageNotFoundError:
        _installed(tmp_path / "site", "torch", torch)
        monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    names: dict[str, Any] = {}

    exec(INSTALL + "\n" + REPORT, names)

    numpy = f"numpy=={version('numpy')}"
    kept = [numpy, f"torch=={torch}"]
    if "transformers" in names["before"]:
        kept.append(f"transformers=={version('transformers')}")
    ((*command, requirement),) = [[*told[:5], told[5:]] for told in pip]
    assert command == [sys.executable, "-m", "pip", "install", "-q"]
    assert requirement == ["dashinfer-lab[lab]", *kept]
    reported = capsys.readouterr().out.splitlines()
    assert f"torch          {torch}" in reported
    assert any(line.startswith("transformers ") for line in reported)


def test_the_install_cell_takes_the_clone_it_lies_in(
    pip: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(QUICKSTART.parent)

    exec(INSTALL, {})

    assert pip[0][5] == f"{QUICKSTART.parents[1]}[lab]"


def test_the_install_cell_does_nothing_where_the_package_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be installed")

    monkeypatch.setattr(subprocess, "run", refuse)

    exec(INSTALL, {})


def test_the_default_is_a_model_that_can_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("dashinfer_lab.hub.resolve", lambda model, _: asked.append(model))
    monkeypatch.setattr("dashinfer_lab.models.supported_models", lambda: ("llama",))
    exec(PULL, {})
    monkeypatch.setattr("dashinfer_lab.models.supported_models", lambda: ("llama", "qwen2"))
    exec(PULL, {})

    english_only, any_language = capsys.readouterr().out.splitlines()
    assert asked == ["smollm2-135m", "qwen/Qwen1.5-0.5B-Chat"]
    assert "内置模型仅支持英文" in english_only
    assert "内置模型仅支持英文" not in any_language


def test_without_a_network_the_embedded_model_is_used_and_its_language_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("modelscope_hub")
    embedded = tmp_path / "embedded.gguf"
    embedded.touch()
    monkeypatch.setenv("DASHINFER_LAB_EMBEDDED", str(embedded))
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MODELSCOPE_HOME", str(tmp_path))
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("dashinfer_lab.models.supported_models", lambda: ("llama", "qwen2"))
    names: dict[str, Any] = {}

    exec(PULL, names)

    said = capsys.readouterr().out
    assert (names["MODEL"], names["source"]) == ("smollm2-135m", embedded)
    assert "qwen/Qwen1.5-0.5B-Chat is not complete in the cache" in said
    assert "改用内置模型" in said
    assert "English only · 内置模型仅支持英文" in said
