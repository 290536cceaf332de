"""ModelScope's real client against a hub on a loopback port."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.errors import CheckpointError, HubError, HubUnreachableError
from dashinfer_lab.hub import open_checkpoint, resolve, snapshots
from dashinfer_lab.hub.modelscope_source import ModelScopeClient
from dashinfer_lab.hub.snapshots import is_complete
from tests.hub.loopback_hub import BLOCK, MODEL, WEIGHTS, LoopbackHub, serving
from tests.hub.tiny_models import weights, write_safetensors

pytest.importorskip("modelscope_hub")


@pytest.fixture
def unreachable(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the client at a port that nobody listens on."""
    with serving({}) as gone:
        url = gone.url
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", url)


def hub_directory() -> Path:
    return Path(os.environ["DASHINFER_LAB_CACHE"]) / "models" / MODEL.replace("/", "--")


def fetched_files(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()} - {".complete.json"}


def test_a_pulled_model_is_its_files_that_matter_and_opens(
    hub: LoopbackHub, checkpoint: dict[str, bytes]
) -> None:
    path = resolve(MODEL)

    assert fetched_files(path) == {"config.json", WEIGHTS, "README.md"} == hub.names()
    assert (path / WEIGHTS).read_bytes() == checkpoint[WEIGHTS]
    assert is_complete(path)
    with open_checkpoint(path) as opened:
        assert (opened.source, opened.licence) == (MODEL, "mit")
        assert set(opened.names()) == set(weights())


def test_nothing_but_the_snapshot_is_left_beside_it(hub: LoopbackHub, tmp_path: Path) -> None:
    path = resolve(MODEL)

    assert list(path.parent.iterdir()) == [path]
    assert [each.name for each in (tmp_path / "cache" / "models").iterdir()] == ["lab--tiny"]


def test_progress_ends_with_all_bytes_and_never_shrinks(hub: LoopbackHub) -> None:
    seen: list[tuple[str, int, int]] = []
    path = resolve(MODEL, lambda *report: seen.append(report))

    total = sum((path / name).stat().st_size for name in fetched_files(path))
    done = [count for _, count, _ in seen]
    assert seen[-1] == (f"fetching {MODEL}", total, total)
    assert done == sorted(done)


def test_the_client_writes_nothing_to_the_terminal(
    hub: LoopbackHub, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.cut_after[WEIGHTS] = 1000
    resolve(MODEL)

    assert capfd.readouterr() == ("", "")


def test_a_cached_model_needs_no_hub(hub: LoopbackHub) -> None:
    first = resolve(MODEL)
    before = hub.requests

    assert resolve(MODEL) == first
    assert hub.requests == before


@pytest.mark.usefixtures("unreachable")
def test_without_a_network_the_way_out_is_named() -> None:
    with pytest.raises(HubUnreachableError, match="Check the network.*smollm2-135m"):
        resolve(MODEL)


def test_without_a_network_a_refresh_keeps_what_is_there(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resolve(MODEL)
    with serving({}) as gone:
        url = gone.url
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", url)

    assert resolve(MODEL, refresh=True) == first


def test_a_refresh_fetches_what_changed_and_only_that(hub: LoopbackHub) -> None:
    path = resolve(MODEL)
    with open_checkpoint(path) as opened:
        before = opened.revision
    files = {**hub.models[MODEL, "master"], "config.json": b'{"model_type": "llama"}'}
    hub.models[MODEL, "master"] = files
    hub.asked.clear()

    assert resolve(MODEL, refresh=True) == path
    assert hub.names() == {"config.json"}
    assert (path / "config.json").read_bytes() == files["config.json"]
    assert list(path.parent.iterdir()) == [path]
    with open_checkpoint(path) as opened:
        assert opened.revision != before


def test_a_refresh_of_what_did_not_change_fetches_nothing(hub: LoopbackHub) -> None:
    path = resolve(MODEL)
    hub.asked.clear()

    assert resolve(MODEL, refresh=True) == path
    assert hub.asked == []
    assert list(path.parent.iterdir()) == [path]


def test_revisions_are_kept_apart(hub: LoopbackHub) -> None:
    files = hub.models[MODEL, "master"]
    hub.models[MODEL, "v1/early"] = {**files, "README.md": b"early"}

    early, late = resolve(f"{MODEL}@v1/early"), resolve(MODEL)

    assert (early / "README.md").read_bytes() == b"early"
    assert (late / "README.md").read_bytes() == files["README.md"]


def test_a_cut_connection_is_resumed_where_it_broke(
    hub: LoopbackHub, checkpoint: dict[str, bytes]
) -> None:
    hub.cut_after[WEIGHTS] = 70_001
    path = resolve(MODEL)

    assert (path / WEIGHTS).read_bytes() == checkpoint[WEIGHTS]
    ranges = [asked for name, asked in hub.asked if name == WEIGHTS]
    assert ranges[0] == ""
    assert 0 < int(ranges[1].removeprefix("bytes=").rstrip("-")) <= 70_001


def test_a_fetch_goes_on_from_what_an_earlier_one_left(
    hub: LoopbackHub, checkpoint: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelscope_hub import _download

    monkeypatch.setattr(_download, "DOWNLOAD_RETRY_TIMES", 0)
    hub.cut_after[WEIGHTS] = 2 * BLOCK
    with pytest.raises(HubUnreachableError, match="what was fetched is kept"):
        resolve(MODEL)
    staging = next((hub_directory() / "snapshots").iterdir())
    with pytest.raises(CheckpointError, match="did not end"):
        open_checkpoint(staging)
    hub.asked.clear()

    path = resolve(MODEL)

    assert (path / WEIGHTS).read_bytes() == checkpoint[WEIGHTS]
    assert [name for name, _ in hub.asked] == [WEIGHTS]
    assert hub.asked[0][1].startswith("bytes=")


def test_a_flipped_byte_is_noticed_and_fetched_again(
    hub: LoopbackHub, checkpoint: dict[str, bytes]
) -> None:
    hub.flipped.add(WEIGHTS)
    path = resolve(MODEL)

    assert (path / WEIGHTS).read_bytes() == checkpoint[WEIGHTS]
    assert [name for name, _ in hub.asked].count(WEIGHTS) == 2


def test_a_file_that_stays_wrong_is_refused_and_not_kept(hub: LoopbackHub) -> None:
    hub.always_flipped.add(WEIGHTS)

    with pytest.raises(HubError, match="not what it lists"):
        resolve(MODEL)
    assert not is_complete(hub_directory() / "snapshots" / "master")
    assert not list(hub_directory().rglob(f"{WEIGHTS}*"))


def test_a_cached_model_that_lost_a_file_is_completed(hub: LoopbackHub) -> None:
    path = resolve(MODEL)
    (path / "config.json").unlink()
    hub.asked.clear()

    assert resolve(MODEL) == path
    assert hub.names() == {"config.json"}


@pytest.mark.parametrize("name", ["lab/absent", "lab/tiny@absent"])
def test_an_unknown_model_or_revision_is_named(hub: LoopbackHub, name: str) -> None:
    with pytest.raises(HubError, match="Check the spelling") as raised:
        resolve(name)
    assert "absent" in str(raised.value)


def test_a_typo_is_answered_with_the_cached_model(hub: LoopbackHub) -> None:
    resolve(MODEL)

    with pytest.raises(HubError, match="Did you mean lab/tiny"):
        resolve("lab/tinny")


def test_a_gated_model_asks_for_a_token_and_opens_with_it(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "s3cret"
    with pytest.raises(HubError, match="set MODELSCOPE_API_TOKEN"):
        resolve(MODEL)
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "wrong")
    with pytest.raises(HubError, match="does not open it") as raised:
        resolve(MODEL)
    assert "wrong" not in str(raised.value)
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "s3cret")

    assert is_complete(resolve(MODEL))


def test_a_web_page_instead_of_a_hub_is_recognised(hub: LoopbackHub) -> None:
    hub.web_page = True

    with pytest.raises(HubError, match="MODELSCOPE_ENDPOINT"):
        resolve(MODEL)


def test_a_full_disk_is_noticed_before_the_download(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))

    with pytest.raises(HubError, match="DASHINFER_LAB_CACHE"):
        resolve(MODEL)
    assert hub.asked == []


@pytest.mark.parametrize(
    "name",
    ["../evil.json", "a/../../evil.json", "/tmp/evil.json", "..\\evil.json", "~/config.json"],
)
def test_a_path_out_of_the_directory_is_refused(
    hub: LoopbackHub, tmp_path: Path, name: str
) -> None:
    hub.models[MODEL, "master"] = {**hub.models[MODEL, "master"], name: b"evil"}

    with pytest.raises(HubError, match="outside its directory"):
        resolve(MODEL)
    assert hub.asked == []


def test_a_model_of_pickles_is_refused(hub: LoopbackHub) -> None:
    hub.models[MODEL, "master"] = {"config.json": b"{}", "pytorch_model.bin": b"\x80\x02"}

    with pytest.raises(HubError, match="pytorch_model.bin is a pickle"):
        resolve(MODEL)
    assert hub.asked == []


def test_two_fetches_at_once_share_one_download(hub: LoopbackHub) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(resolve(MODEL))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [found[0]] * 3
    assert is_complete(found[0])
    assert [name for name, _ in hub.asked].count(WEIGHTS) == 1
    assert list(found[0].parent.iterdir()) == [found[0]]


def test_a_directory_that_comes_and_goes_is_waited_for_again(tmp_path: Path) -> None:
    failed: list[OSError] = []

    def fetch_and_find_it_there() -> None:
        for _ in range(200):
            try:
                with snapshots._fetching(tmp_path / "master", None) as staging:
                    shutil.rmtree(staging)
            except OSError as error:
                failed.append(error)

    threads = [threading.Thread(target=fetch_and_find_it_there) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # one thread looks in the midst of what another does
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)

    assert failed == []
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_the_same_name_comes_first(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_safetensors(tmp_path / "lab" / "tiny")

    assert resolve(MODEL) == Path(MODEL)
    assert hub.requests == 0


def test_a_model_runs_by_its_id_and_its_conversion_bears_its_name(hub: LoopbackHub) -> None:
    from dashinfer_lab import LLM, SamplingParams

    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    for _ in range(2):
        with LLM(MODEL, weights="fp32", threads=1) as llm:
            (output,) = llm.generate([{"prompt_token_ids": [5, 6, 7]}], params)
            assert len(output.outputs[0].token_ids) == 3
            assert llm.artifact.directory.name.startswith("lab--tiny-fp32-")
            assert llm.artifact.metadata["source"] == MODEL

    assert [name for name, _ in hub.asked].count(WEIGHTS) == 1


def test_a_disk_that_fills_up_meanwhile_keeps_nothing(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(
        _: object, model: object, commit: str, names: object, directory: Path, *__: Any
    ) -> None:
        (directory / WEIGHTS).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ModelScopeClient, "download", full)
        with pytest.raises(HubError, match="cannot be stored .*No space left.*DASHINFER_LAB_CACHE"):
            resolve(MODEL)

    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    assert is_complete(resolve(MODEL))


def test_a_file_of_the_right_length_but_all_zeros_is_refused(
    hub: LoopbackHub, checkpoint: dict[str, bytes]
) -> None:
    path = resolve(MODEL)
    (path / WEIGHTS).write_bytes(b"\0" * len(checkpoint[WEIGHTS]))

    with pytest.raises(CheckpointError, match="header of 0 bytes"):
        open_checkpoint(path)
