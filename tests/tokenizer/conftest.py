"""Vocabularies, ids and chat templates of llama.cpp, from an sdist on PyPI; none is committed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

_PACKAGE = "llama-cpp-python==0.3.36"
_WANTED = ("/vendor/llama.cpp/models/", "/vendor/llama.cpp/tests/test-chat-template.cpp")


@pytest.fixture(scope="session")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of llama.cpp within the sdist; skips where it cannot be fetched."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder)]
    command += ["--no-binary", "llama-cpp-python", _PACKAGE]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if fetched.returncode or not archives:
        pytest.skip(f"pip cannot fetch {_PACKAGE}: {fetched.stderr.strip()[-200:]}")
    with tarfile.open(archives[0]) as archive:
        wanted = [it for it in archive if any(part in it.name for part in _WANTED)]
        archive.extractall(folder, members=wanted, filter="data")
    return next(folder.glob("*/vendor/llama.cpp"))
