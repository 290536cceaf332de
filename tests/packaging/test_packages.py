"""What is published: the wheel and the sdist, tried outside the sources."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from dashinfer_lab import __version__
from dashinfer_lab.models import describe_models
from tests.architecture.source_tree import PACKAGES, ROOT
from tests.packaging.installed import Installed, build, install

pytestmark = [pytest.mark.packaging, pytest.mark.slow]


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel made from it."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def installed(packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    outside = folder / "elsewhere"
    outside.mkdir()
    return install(packages[1], folder / "environment", outside)


def _tracked(*folders: str) -> set[str]:
    """Files of the sources, as git knows them; as they lie, where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return {p.relative_to(ROOT).as_posix() for p in found if p.is_file() and p.suffix != ".pyc"}


def test_the_wheel_holds_every_file_of_the_packages(packages: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packages[1]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert held == _tracked(*PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= held


def test_the_sdist_holds_what_its_tests_and_documents_need(packages: tuple[Path, Path]) -> None:
    with tarfile.open(packages[0]) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}

    documents = {path.name for path in ROOT.glob("*.md")}
    others = {"LICENSE", "Makefile", "environment.yml", "pyproject.toml"}
    assert held >= _tracked(*PACKAGES, "demos", "notebooks", "tests") | documents | others


def test_what_is_imported_came_with_the_wheel(installed: Installed) -> None:
    program = "import dashinfer_lab, jit_kernels as j; print(dashinfer_lab.__file__, j.__file__)"
    files = installed.run("python", "-c", program).split()

    assert all(Path(file).is_relative_to(installed.environment) for file in files)


def test_every_module_of_the_wheel_can_be_imported(installed: Installed) -> None:
    program = (
        "import importlib, pkgutil, dashinfer_lab, jit_kernels\n"
        "for package in (dashinfer_lab, jit_kernels):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
        "            print(module.name)\n"
    )
    imported = installed.run("python", "-c", program).split()

    assert len(imported) > 100


def test_the_console_script_tells_its_version(installed: Installed) -> None:
    assert installed.run("dashinfer-lab", "--version") == f"dashinfer-lab {__version__}\n"


def test_info_reports_the_installed_version(installed: Installed) -> None:
    facts = json.loads(installed.run("dashinfer-lab", "info", "--json"))

    assert facts["versions"]["dashinfer_lab"] == __version__
    assert facts["cpu"]["isa"]


def test_the_installed_package_knows_its_models(installed: Installed) -> None:
    known = json.loads(installed.run("dashinfer-lab", "models", "--json"))["models"]

    assert [model["model_type"] for model in known] == [m.model_type for m in describe_models()]


@pytest.mark.model
def test_the_installed_package_runs_a_model(installed: Installed, embedded_gguf: Path) -> None:
    said = installed.run(
        *("dashinfer-lab", "run", "smollm2-135m", "The capital of France is", "--max-tokens=8"),
        DASHINFER_LAB_EMBEDDED=str(embedded_gguf),
    )

    assert "Paris" in said
