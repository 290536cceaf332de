"""Vocabularies, ids and chat templates of llama.cpp, from an sdist on PyPI; none is committed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_PACKAGE = "llama-cpp-python==0.3.36"
_WANTED = ("/vendor/llama.cpp/models/", "/vendor/llama.cpp/tests/test-chat-template.cpp")


@pytest.fixture(scope="session")
def llama_cpp(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of llama.cpp within the sdist, which pytest's cache keeps.

    Skips where it cannot be fetched.
    """
    kept = request.config.cache.mkdir("sdist") / _PACKAGE
    if not kept.is_dir():
        archive = _fetched(tmp_path_factory.mktemp("sdist"))
        with TemporaryDirectory(dir=kept.parent, prefix=".extracting-") as folder:
            with tarfile.open(archive) as opened:
                wanted = [it for it in opened if any(part in it.name for part in _WANTED)]
                opened.extractall(folder, members=wanted, filter="data")
            with suppress(OSError):  # another process was faster
                next(Path(folder).glob("llama_cpp_python-*")).rename(kept)
    return kept / "vendor" / "llama.cpp"


def _fetched(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder)]
    command += ["--no-binary", "llama-cpp-python", _PACKAGE]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if run.returncode or not archives:
        pytest.skip(f"pip cannot fetch {_PACKAGE}: {run.stderr.strip()[-200:]}")
    return archives[0]
