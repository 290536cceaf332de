from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from dashinfer_lab.cache import KINDS, clear, list_entries, prune, remove, usage
from dashinfer_lab.convert import converted
from dashinfer_lab.errors import CacheError, ConfigError, HubError
from dashinfer_lab.hub import snapshots
from dashinfer_lab.hub.embedded import EMBEDDED_MODELS
from dashinfer_lab.hub.hub_client import HubFile, Listing
from dashinfer_lab.hub.model_id import HubId, parse_hub_id
from tests.hub.tiny_models import write_safetensors

HOUR = 3600.0


class OfflineHub:
    """Serves one directory's files without a network."""

    compares_hashes = True

    def __init__(self, source: Path) -> None:
        self.source = source

    def list_files(self, model: HubId) -> Listing:
        paths = sorted(self.source.iterdir())
        return Listing("abc", [HubFile(path.name, path.stat().st_size) for path in paths])

    def download(
        self, model: HubId, commit: str, names: list[str], directory: Path, advance: object
    ) -> None:
        for name in names:
            (directory / name).write_bytes((self.source / name).read_bytes())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pulled(cache: Path, tmp_path: Path) -> Path:
    """A model of a hub, in the cache."""
    write_safetensors(tmp_path / "source")
    model = parse_hub_id("lab/tiny")
    assert model is not None
    return snapshots.fetch_snapshot(OfflineHub(tmp_path / "source"), model)


def abandoned(path: Path, num_bytes: int = 7) -> Path:
    """Make a file that was last changed long before now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(num_bytes))
    os.utime(path, (0, 0))
    os.utime(path.parent, (0, 0))
    return path


def test_an_empty_cache_lists_nothing_and_needs_no_directory(cache: Path) -> None:
    assert list_entries() == []
    assert [(it.kind, it.num_bytes, it.num_files) for it in usage()] == [
        (kind, 0, 0) for kind in KINDS
    ]
    assert prune(0.0) == []
    assert not cache.exists()


def test_a_pulled_model_and_its_conversion_are_listed(pulled: Path) -> None:
    directory = converted(pulled, "a16w8")

    fetched, made = list_entries()
    assert (fetched.name, fetched.kind, fetched.path) == ("lab/tiny", "models", pulled)
    assert fetched.num_bytes == sum(path.stat().st_size for path in pulled.iterdir())
    assert (made.name, made.path) == (directory.name, directory)
    assert made.source == "lab/tiny"
    assert made.scheme is not None
    assert made.scheme.startswith("a16w8")


def test_the_embedded_model_is_listed_by_its_name(cache: Path) -> None:
    (model,) = EMBEDDED_MODELS.values()
    abandoned(cache / "models" / model.name / model.file_name, 11)

    (entry,) = list_entries()
    assert (entry.name, entry.num_bytes) == (model.name, 11)


def test_a_model_is_removed_by_its_name_with_its_empty_directories(
    pulled: Path, cache: Path
) -> None:
    (gone,) = remove(["lab/tiny"])

    assert gone.path == pulled
    assert list((cache / "models").iterdir()) == []
    assert list_entries() == []


def test_a_conversion_is_removed_by_its_path_and_its_source_stays(pulled: Path) -> None:
    directory = converted(pulled, "fp32")

    remove([str(directory)])

    assert [entry.name for entry in list_entries()] == ["lab/tiny"]


def test_an_unknown_name_removes_nothing_and_names_the_near_one(pulled: Path) -> None:
    with pytest.raises(HubError, match="did you mean lab/tiny"):
        remove(["lab/tiny", "lab/tinny"])

    assert pulled.is_dir()


@pytest.mark.parametrize("name", ["..", "/", "", ".", "models", "../outside"])
def test_what_is_no_model_of_the_cache_is_not_removed(
    pulled: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "outside").mkdir()

    with pytest.raises(HubError, match="holds no model"):
        remove([name])
    assert pulled.is_dir()
    assert (tmp_path / "outside").is_dir()


@pytest.mark.parametrize("kind", ["models", "objects"])
def test_nothing_is_removed_through_a_link_that_leads_out(
    cache: Path, tmp_path: Path, kind: str
) -> None:
    kept = abandoned(tmp_path / "elsewhere" / "aa" / ".x.part")
    cache.mkdir()
    (cache / kind).symlink_to(tmp_path / "elsewhere", target_is_directory=True)

    with pytest.raises(CacheError, match="outside the cache"):
        clear(kind)
    if kind == "objects":
        with pytest.raises(CacheError, match="outside the cache"):
            prune(9 * HOUR)
    assert kept.is_file()


def test_what_may_not_be_removed_is_named(pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rename", refuse)

    with pytest.raises(CacheError, match=r"cannot be removed: Permission denied; allow writing in"):
        clear("models")
    assert pulled.is_dir()


def test_a_kind_is_cleared_alone(pulled: Path, cache: Path) -> None:
    abandoned(cache / "objects" / "aa" / "x.o", 5)

    (gone,) = clear("objects")

    assert gone.num_bytes == 5
    assert list((cache / "objects").iterdir()) == []
    assert pulled.is_dir()


def test_an_unknown_kind_is_refused(cache: Path) -> None:
    with pytest.raises(ConfigError, match="models, conversions, objects, lowered"):
        clear("..")


def test_what_cut_work_left_is_pruned_and_all_else_stays(pulled: Path, cache: Path) -> None:
    partial = [
        abandoned(cache / "models" / "lab--other" / "snapshots" / ".fetch-master" / "a.incomplete"),
        abandoned(cache / "models" / "smollm2-135m" / ".fetch-x" / "tiny.whl"),
        abandoned(cache / "conversions" / ".tiny.converting-1-ab" / "model.ditensors"),
        abandoned(cache / "objects" / "aa" / ".x.part"),
        abandoned(cache / "schedules" / ".x.part"),
        abandoned(cache / "lowered" / ".x.json.ab.incomplete"),
        abandoned(cache / ".roof.json.ab.incomplete"),
        abandoned(cache / "models" / ".removing-ab" / "model.safetensors"),
    ]
    kept = abandoned(cache / "objects" / "aa" / "x.o")

    gone = prune(9 * HOUR)

    assert [path for path in partial if path.exists()] == []
    assert sum(it.num_bytes for it in gone) == 7 * len(partial)
    assert kept.is_file()
    assert [entry.name for entry in list_entries()] == ["lab/tiny"]


def test_what_a_running_process_makes_is_neither_pruned_nor_cleared(cache: Path) -> None:
    part = abandoned(cache / "models" / "lab--tiny" / "snapshots" / ".fetch-master" / "a.part")
    young = cache / "models" / "smollm2-135m" / ".fetch-x" / "tiny.whl"
    abandoned(young)
    lock = os.open(part.parent, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        gone = prune(young.stat().st_mtime + HOUR - 1)
        clear("models")
    finally:
        os.close(lock)

    assert gone == []
    assert part.is_file()
