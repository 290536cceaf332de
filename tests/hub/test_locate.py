"""What a user calls a model, where it is nothing that could be one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.cache import list_entries
from dashinfer_lab.config import cache_root, embedded_override
from dashinfer_lab.convert import convert
from dashinfer_lab.errors import CheckpointError, ConfigError, HubError
from dashinfer_lab.hub import open_checkpoint, resolve
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config
from tests.hub.tiny_models import write_gguf, write_safetensors

_NOBODY = "~no_such_user/model"


@pytest.mark.parametrize("model", [None, 5, b"smollm2-135m", []], ids=repr)
def test_what_is_no_name_is_refused(model: Any) -> None:
    with pytest.raises(HubError, match="is no model: give the directory"):
        resolve(model)


def test_the_home_of_nobody_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DASHINFER_LAB_CACHE", "DASHINFER_LAB_EMBEDDED"):
        monkeypatch.setenv(name, _NOBODY)

    for use in (
        lambda: resolve(_NOBODY),
        lambda: convert(tiny_checkpoint(tiny_config()), Path(_NOBODY), "fp32"),
        cache_root,
        embedded_override,
    ):
        with pytest.raises(ConfigError, match="home directory in '~no_such_user/model'"):
            use()


def test_a_conversion_is_found_by_the_name_that_list_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path))
    directory = tmp_path / "conversions" / "tiny-fp32-0123"
    convert(tiny_checkpoint(tiny_config()), directory, "fp32")
    (tmp_path / "conversions" / "half-0123").mkdir()
    (entry,) = list_entries()

    assert resolve(entry.name) == directory
    for name in ("half-0123", "conversions/tiny-fp32-0123/", "../tiny-fp32-0123"):
        with pytest.raises(HubError):
            resolve(name)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path, name: str) -> None:
    write_safetensors(tmp_path / "model")
    path = tmp_path / "model" / name
    path.unlink()
    os.mkfifo(path)

    with pytest.raises(CheckpointError, match=f"{name} cannot be read: it is not a file"):
        open_checkpoint(tmp_path / "model")


def test_a_pipe_called_gguf_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")

    with pytest.raises(CheckpointError, match="model.gguf cannot be read: it is not a file"):
        open_checkpoint(tmp_path)


def test_a_gguf_file_may_not_be_a_link_out_of_its_directory(tmp_path: Path) -> None:
    write_gguf(tmp_path / "outside.gguf")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tiny.gguf").symlink_to("../outside.gguf")

    with pytest.raises(CheckpointError, match="outside the model's directory"):
        open_checkpoint(tmp_path / "model")
    open_checkpoint(tmp_path / "model" / "tiny.gguf").close()  # a file that the caller names


def test_a_link_to_itself_is_a_missing_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.unlink()
    config.symlink_to(config)

    with pytest.raises(CheckpointError, match=r"config.json"):
        open_checkpoint(tmp_path / "model")
