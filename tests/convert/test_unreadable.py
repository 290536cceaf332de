"""What cannot be read, written or kept still is told by name, with a way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from dashinfer_lab.cache.entries import list_entries
from dashinfer_lab.convert import Artifact
from dashinfer_lab.convert import artifact as artifact_module
from dashinfer_lab.convert.container import ContainerIndex
from dashinfer_lab.convert.converter import convert
from dashinfer_lab.errors import ArtifactError, ConversionError, TokenizerError
from dashinfer_lab.tokenizer import Tokenizer
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config
from tests.tokenizer.tiny_tokenizers import byte_level


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Let nobody, root neither, read the file of a name in a directory of a name."""
    open_path = Path.open

    def forbid(directory: str, name: str) -> None:
        def checked(path: Path, *given: Any, **named: Any) -> IO[Any]:
            if (path.parent.name, path.name) == (directory, name):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return open_path(path, *given, **named)

        monkeypatch.setattr(Path, "open", checked)

    return forbid


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "a16w8")


@pytest.mark.parametrize("name", ["model.dimodel", "model.ditensors"])
def test_a_file_that_cannot_be_read_is_named(
    artifact: Artifact, forbid: Callable[[str, str], None], name: str
) -> None:
    forbid("model", name)

    with pytest.raises(ArtifactError, match=rf"{name} cannot be read: Permission denied; allow"):
        Artifact.open(artifact.directory)


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json"])
def test_a_forbidden_tokenizer_file_is_not_called_damaged(
    tmp_path: Path, forbid: Callable[[str, str], None], name: str
) -> None:
    directory = byte_level(tmp_path / "tokens")
    forbid("tokens", name)

    with pytest.raises(TokenizerError, match=rf"{name} cannot be read: Permission denied$"):
        Tokenizer.load(directory)


def test_a_place_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot be read: File name too long"):
        Artifact.open(tmp_path / ("x" * 300))


def test_one_that_cannot_be_read_does_not_hide_the_others_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbid: Callable[[str, str], None]
) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path))
    for name in ("first", "second"):
        convert(tiny_checkpoint(tiny_config()), tmp_path / "conversions" / name, "a16w8")
    forbid("first", "model.ditensors")

    assert [(it.name, it.source) for it in list_entries()] == [
        ("first", "damaged"),
        ("second", "tiny"),
    ]


@pytest.mark.parametrize("place", ["/proc/self/absent/model", "x" * 300, "file/model"])
def test_a_place_that_cannot_be_written_is_named_with_a_way_out(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(ConversionError, match=r"writing .* failed: .*; choose another directory"):
        convert(tiny_checkpoint(tiny_config()), tmp_path / place, "a16w8")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["model.dimodel", "model.ditensors"])
def test_a_link_out_of_the_directory_is_refused(
    artifact: Artifact, tmp_path: Path, name: str
) -> None:
    (artifact.directory / name).rename(tmp_path / name)
    (artifact.directory / name).symlink_to(tmp_path / name)

    with pytest.raises(ArtifactError, match=rf"{name} is a link to .*, outside"):
        Artifact.open(artifact.directory)


def test_a_snapshot_of_a_hub_may_link_to_its_blobs(artifact: Artifact, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "snapshots" / "r1"
    snapshot.mkdir(parents=True)
    (artifact.directory).rename(tmp_path / "hub" / "blobs")
    for path in (tmp_path / "hub" / "blobs").iterdir():
        (snapshot / path.name).symlink_to(path)

    assert Artifact.open(snapshot).config == artifact.config


def test_a_graph_file_of_absurd_size_is_refused_unread(artifact: Artifact) -> None:
    with artifact.graph_path.open("r+b") as file:
        file.truncate(1 << 40)

    with pytest.raises(ArtifactError, match=r"larger than \d+ bytes"):
        Artifact.open(artifact.directory)


def test_what_is_open_stays_as_it_was_when_its_files_are_replaced(artifact: Artifact) -> None:
    names = list(artifact.tensors)
    before = [artifact.tensor(name).copy() for name in names]
    convert(tiny_checkpoint(tiny_config()), artifact.directory, "fp32", overwrite=True)

    for name, kept in zip(names, before, strict=True):
        np.testing.assert_array_equal(artifact.tensor(name), kept)
    assert Artifact.open(artifact.directory).metadata["scheme"] == "fp32"


def test_files_replaced_while_they_are_opened_are_not_mixed(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = convert(tiny_checkpoint(tiny_config()), tmp_path / "other", "fp32")
    check = vars(artifact_module)["_check_graph"]

    def check_and_replace(path: Path, index: ContainerIndex) -> None:
        check(path, index)
        artifact.directory.rename(tmp_path / "aside")
        other.directory.rename(artifact.directory)

    monkeypatch.setattr(artifact_module, "_check_graph", check_and_replace)
    opened = Artifact.open(artifact.directory)

    assert opened.metadata["scheme"] == "a16w8:64"
    for name in artifact.tensors:
        np.testing.assert_array_equal(opened.tensor(name), artifact.tensor(name))
