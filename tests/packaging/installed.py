"""An environment that holds the wheel and borrows everything else from the tests' own.

Only what the wheel brings can be imported as ours: a path in a `.pth` file is searched, but the
`.pth` files inside it, the editable installation's among them, are not read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.source_tree import ROOT

__all__ = ["Installed", "build", "install"]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment and a directory outside the sources to run its programs in."""

    environment: Path
    outside: Path

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Run a program of the environment and return what it wrote on stdout."""
        ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        done = subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            cwd=self.outside,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def build(output: Path) -> tuple[Path, Path]:
    """Build the sdist, and from it, unpacked elsewhere, the wheel. Return both paths."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = output.glob("*.tar.gz"), output.glob("*.whl")
    return sdist, wheel


def install(wheel: Path, environment: Path, outside: Path) -> Installed:
    """Install `wheel` alone into a new environment, its dependencies borrowed."""
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    command = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return Installed(environment, outside)
