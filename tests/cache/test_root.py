"""Where the cache lies: the environment's choice, ModelScope's lasting disk, XDG's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab import config
from dashinfer_lab.config import cache_root


def test_the_environment_wins_over_the_workspace_and_that_over_xdg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    monkeypatch.setattr(config, "_MODELSCOPE_WORKSPACE", workspace)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "chosen"))
    assert cache_root() == tmp_path / "chosen"

    monkeypatch.delenv("DASHINFER_LAB_CACHE")
    assert cache_root() == tmp_path / "xdg" / "dashinfer_lab"

    workspace.mkdir()
    assert cache_root() == workspace / ".cache" / "dashinfer_lab"
