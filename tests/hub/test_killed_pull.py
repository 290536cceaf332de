"""A pull that is killed, at many moments: nothing loads as a model, and the next one recovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashinfer_lab.errors import DashInferLabError
from dashinfer_lab.hub import open_checkpoint, resolve
from dashinfer_lab.hub.snapshots import is_complete
from tests.hub.loopback_hub import BLOCK, LoopbackHub, serving
from tests.hub.tiny_models import write_safetensors

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = 20

pytest.importorskip("modelscope_hub")
pytestmark = pytest.mark.slow

# Reports every byte count; stops at the report asked for, until it is killed.
PULL = """\
import os, signal, sys
from dashinfer_lab.hub import resolve
stop = int(sys.argv[1])
def report(what, done, total):
    if done >= stop >= 0:
        os.kill(os.getpid(), signal.SIGKILL)
print(resolve("lab/tiny", report))
"""
# Dies at one of the steps that finish a snapshot, by number.
FINISH = """\
import os, signal, sys
from pathlib import Path
from dashinfer_lab.hub import resolve, snapshots
left = int(sys.argv[1])
def dying(step):
    def call(*args, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*args, **options)
    return call
for name in ("_sync", "_remove_all_but", "write_json", "_publish"):
    setattr(snapshots, name, dying(getattr(snapshots, name)))
Path.rename = dying(Path.rename)
print(resolve("lab/tiny", refresh="refresh" in sys.argv))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_safetensors(directory, num_shards=3)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[LoopbackHub]:
    with serving({("lab/tiny", "master"): files}) as hub:
        yield hub


def pull(
    hub: LoopbackHub, tmp_path: Path, *arguments: object, program: str = PULL
) -> subprocess.CompletedProcess[str]:
    places = {"DASHINFER_LAB_CACHE": str(tmp_path / "cache"), "MODELSCOPE_HOME": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **places, "MODELSCOPE_ENDPOINT": hub.url},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def assert_nothing_loads(cache: Path) -> None:
    """No directory of the cache opens as a checkpoint, unless it is complete."""
    for directory in cache.rglob("*/"):
        if is_complete(directory):
            continue
        with pytest.raises(DashInferLabError):
            open_checkpoint(directory).close()


def assert_recovers(hub: LoopbackHub, tmp_path: Path, files: dict[str, bytes]) -> None:
    ended = pull(hub, tmp_path, -1)
    path = Path(ended.stdout.strip())

    assert ended.returncode == 0, ended.stderr
    assert is_complete(path)
    assert {name: (path / name).read_bytes() for name in files} == files
    assert list(path.parent.iterdir()) == [path]


def kill_points(files: dict[str, bytes], count: int) -> list[int]:
    total = sum(map(len, files.values()))
    return [total * step // count for step in range(count + 1)]


@pytest.mark.parametrize("step", range(10))
def test_killed_at_any_byte_it_leaves_no_model_and_recovers(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, step: int
) -> None:
    ended = pull(hub, tmp_path, kill_points(files, 9)[step])

    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert_nothing_loads(tmp_path / "cache")
    assert_recovers(hub, tmp_path, files)


@pytest.mark.parametrize("step", range(0, 9, 2))
def test_killed_while_it_finishes_it_leaves_no_half_model_and_recovers(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, step: int
) -> None:
    ended = pull(hub, tmp_path, step, program=FINISH)

    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert_nothing_loads(tmp_path / "cache")
    assert_recovers(hub, tmp_path, files)


@pytest.mark.parametrize("step", [1, 5, 7, 8, 9])
def test_killed_while_it_replaces_an_older_state_it_recovers(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, step: int
) -> None:
    newer = {**files, "README.md": b"newer"}
    assert pull(hub, tmp_path, -1).returncode == 0
    hub.models["lab/tiny", "master"] = newer
    ended = pull(hub, tmp_path, step, "refresh", program=FINISH)

    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert_nothing_loads(tmp_path / "cache")
    again = pull(hub, tmp_path, 99, "refresh", program=FINISH)
    path = Path(again.stdout.strip())
    assert {name: (path / name).read_bytes() for name in newer} == newer


def test_killed_from_outside_between_two_blocks_it_recovers(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    assert max(map(len, files.values())) > BLOCK
    hub.gate = threading.Event()
    places = {"DASHINFER_LAB_CACHE": str(tmp_path / "cache"), "MODELSCOPE_HOME": str(tmp_path)}
    reporting = PULL.replace("if done >= stop >= 0:", "print(done, flush=True)\n    if False:")
    with subprocess.Popen(
        [sys.executable, "-c", reporting, "-1"],
        env={**os.environ, **places, "MODELSCOPE_ENDPOINT": hub.url},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        while int(running.stdout.readline()) == 0:
            pass
        running.kill()
    hub.gate.set()

    assert running.returncode == -signal.SIGKILL
    assert_nothing_loads(tmp_path / "cache")
    assert_recovers(hub, tmp_path, files)


AT_RANDOM = """\
import os, sys
from pathlib import Path
import modelscope, modelscope_hub
from dashinfer_lab.hub import resolve
from tests.random_kills import kill_at_random

def work(name):
    os.environ["DASHINFER_LAB_CACHE"] = str(Path(sys.argv[1]) / name / "cache")
    resolve("lab/tiny")

print(*kill_at_random(work, int(sys.argv[2]), seed=20261129))
"""


def test_killed_at_random_moments_it_leaves_no_model_and_recovers(
    hub: LoopbackHub, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    ended = pull(hub, tmp_path, tmp_path, MOMENTS, program=AT_RANDOM)
    assert ended.returncode == 0, ended.stderr
    ends = list(map(int, ended.stdout.split()))
    assert len(ends) == MOMENTS
    assert set(ends) <= {0, -signal.SIGKILL}
    assert -signal.SIGKILL in ends

    monkeypatch.setenv("MODELSCOPE_HOME", str(tmp_path))
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    for moment in range(MOMENTS):
        cache = tmp_path / str(moment) / "cache"
        assert_nothing_loads(cache)
        monkeypatch.setenv("DASHINFER_LAB_CACHE", str(cache))
        path = resolve("lab/tiny")
        assert is_complete(path)
        assert {name: (path / name).read_bytes() for name in files} == files
        assert list(path.parent.iterdir()) == [path]
