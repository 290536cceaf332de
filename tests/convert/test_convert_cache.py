"""The cache of conversions: once per source, scheme and version; changed files convert again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dashinfer_lab.config import cache_root
from dashinfer_lab.convert import Artifact
from dashinfer_lab.convert.convert_cache import converted
from dashinfer_lab.errors import CheckpointError
from tests.convert.memory_checkpoint import MemoryCheckpoint, tiny_checkpoint, tiny_config
from tests.hub.tiny_models import write_safetensors


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that opens as a tiny checkpoint, and a cache of its own."""
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))
    opened: list[MemoryCheckpoint] = []

    def open_checkpoint(path: Path) -> MemoryCheckpoint:
        opened.append(tiny_checkpoint(tiny_config()))
        (tmp_path / "opened").write_text(str(len(opened)), encoding="utf-8")
        return opened[-1]

    monkeypatch.setattr("dashinfer_lab.convert.convert_cache.open_checkpoint", open_checkpoint)
    directory = tmp_path / "my model"
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


def _times_opened(source: Path) -> int:
    return int((source.parent / "opened").read_text(encoding="utf-8"))


def test_a_model_is_converted_once(source: Path) -> None:
    first = converted(source, "a16w8")

    assert converted(source, "a16w8:64") == first
    assert _times_opened(source) == 1
    assert first.parent == cache_root() / "conversions"
    assert first.name.startswith("my_model-a16w8_64-")


def test_another_scheme_is_another_directory(source: Path) -> None:
    assert converted(source, "fp32") != converted(source, "bf16")
    assert _times_opened(source) == 2


@pytest.mark.parametrize(
    "name", ["model.safetensors", "model.gguf", "tokenizer.json", "qwen.tiktoken"]
)
def test_a_changed_file_is_converted_again(source: Path, name: str) -> None:
    (source / name).write_bytes(b"content")
    first = converted(source, "fp32")
    os.utime(source / name, ns=(1, 1))

    assert converted(source, "fp32") != first


def test_a_damaged_conversion_is_made_again(source: Path) -> None:
    directory = converted(source, "fp32")
    weights = directory / "model.ditensors"
    weights.write_bytes(weights.read_bytes()[:-1])

    assert converted(source, "fp32") == directory
    assert Artifact.open(directory).metadata["scheme"] == "fp32"


def test_an_artifact_is_used_as_it_is(source: Path) -> None:
    directory = converted(source, "fp32")

    assert converted(directory, "a16w8") == directory


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.gguf cannot be read"):
        converted(tmp_path / "absent.gguf", "fp32")


AT_ONCE = """\
import os, sys
from pathlib import Path
from dashinfer_lab.convert import converted

children = []
for _ in range(4):
    child = os.fork()
    if not child:
        code = 1
        try:
            line = f"{converted(Path(sys.argv[1]), 'a16w8')}\\n"
            os.write(1, line.encode())  # at once, where print may write the end apart
            code = 0
        finally:
            os._exit(code)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_processes_that_convert_the_same_model_at_once_share_one_result(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, str(tmp_path / "model")],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "DASHINFER_LAB_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    (directory,) = {Path(line) for line in done.stdout.splitlines()}
    assert list(directory.parent.iterdir()) == [directory]
    assert Artifact.open(directory).metadata["scheme"] == "a16w8:64"
