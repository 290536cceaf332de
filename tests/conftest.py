"""What all tests share: a cache of their own, and the embedded model's file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashinfer_lab.config import cache_root, embedded_override
from dashinfer_lab.hub.embedded import EMBEDDED_MODELS

_REAL_CACHE = cache_root()
_SHARED = ("models", "objects")  # what is addressed by checksum and costs much to make


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Convert into a directory of this test run; fetched models and compiled objects are shared."""
    root = tmp_path_factory.mktemp("cache")
    for name in _SHARED:
        (_REAL_CACHE / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(_REAL_CACHE / name, target_is_directory=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASHINFER_LAB_CACHE", str(root))
        yield


@pytest.fixture(scope="session")
def embedded_gguf() -> Path:
    """The embedded model's GGUF file; the test is skipped where it was not fetched."""
    override = embedded_override()
    if override is not None:
        return override
    model = EMBEDDED_MODELS["smollm2-135m"]
    path = _REAL_CACHE / "models" / model.name / model.file_name
    if not path.is_file():
        pytest.skip(f"{path} is not there; fetch it: dashinfer-lab pull {model.name}")
    return path
