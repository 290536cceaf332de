"""A conversion that is killed, at many moments: nothing half loads, and the next one recovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dashinfer_lab.convert import Artifact
from dashinfer_lab.convert.converter import convert
from dashinfer_lab.errors import ArtifactError
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = 20

# Counts what the converter calls, a system call among others, and forks a child for each moment
# that dies just before such a call: half of them over the whole run, half while it is published.
PROGRAM = """\
import os, signal, sys
from pathlib import Path
from dashinfer_lab.convert import converter
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config

root, moments, overwrite = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "overwrite"
inside = str(Path(converter.__file__).parent)

def converted(target, stop):
    calls = last_sync = 0
    def count(frame, event, _):
        nonlocal calls, last_sync
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(inside):
            calls += 1
            if calls == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            if frame.f_code.co_name == "_sync":
                last_sync = calls
    sys.setprofile(count)
    converter.convert(tiny_checkpoint(tiny_config()), target, "a16w8", overwrite=overwrite)
    sys.setprofile(None)
    return last_sync

def prepared(name):
    target = root / name / "model"
    if overwrite:
        converter.convert(tiny_checkpoint(tiny_config()), target, "fp32")
    return target

converted(prepared("first"), None)  # what is imported only once is not counted
total = converted(prepared("counted"), None)
half = moments // 2
stops = [1 + total * i // half for i in range(half)]
stops += [total + 8 - 5 * i for i in range(half)]
for moment, stop in enumerate(stops):
    target = prepared(f"killed-{moment}")
    child = os.fork()
    if not child:
        converted(target, stop)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def killed(directory: Path, mode: str) -> list[Path]:
    """Return the directories that conversions, each killed at another moment, have left."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory), str(MOMENTS), mode],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(-signal.SIGKILL)] * MOMENTS
    return [directory / f"killed-{moment}" for moment in range(MOMENTS)]


def loads(directory: Path) -> bool:
    try:
        Artifact.open(directory)
    except ArtifactError:
        return False
    return True


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("mode", ["new", "overwrite"])
def test_a_conversion_killed_at_any_moment_leaves_the_old_state_or_the_new_and_is_recovered(
    tmp_path: Path, mode: str
) -> None:
    whole = convert(tiny_checkpoint(tiny_config()), tmp_path / "whole", "a16w8")
    old = convert(tiny_checkpoint(tiny_config()), tmp_path / "old", "fp32")
    possible = [content(whole.directory)] + [content(old.directory)] * (mode == "overwrite")
    interrupted = 0

    for directory in killed(tmp_path, mode):
        left = list(directory.iterdir()) if directory.exists() else []
        interrupted += any(path.name != "model" for path in left)
        for path in left:
            if path.name == "model":
                assert content(path) in possible
            else:
                assert not loads(path)
        target = directory / "model"
        convert(tiny_checkpoint(tiny_config()), target, "a16w8", overwrite=True)
        assert content(target) == content(whole.directory)
        assert [path.name for path in directory.iterdir()] == ["model"]
    assert interrupted >= MOMENTS // 2


AT_RANDOM = """\
import sys
from pathlib import Path
from dashinfer_lab.convert.converter import convert
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config
from tests.random_kills import kill_at_random

root = Path(sys.argv[1])
source = tiny_checkpoint(tiny_config(vocab_size=20011, hidden_size=240, intermediate_size=900))

def work(name):
    convert(source, root / name / "model", "a16w8", overwrite=True)

print(*kill_at_random(work, int(sys.argv[2]), seed=20261129))
"""


def test_a_conversion_killed_at_random_moments_leaves_nothing_half_and_is_recovered(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_RANDOM, str(tmp_path), str(MOMENTS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ends = list(map(int, done.stdout.split()))
    assert len(ends) == MOMENTS
    assert set(ends) <= {0, -signal.SIGKILL}
    assert -signal.SIGKILL in ends

    whole = content(tmp_path / "third" / "model")
    source = tiny_checkpoint(tiny_config(vocab_size=20011, hidden_size=240, intermediate_size=900))
    for moment in range(MOMENTS):
        directory = tmp_path / str(moment)
        for path in directory.iterdir() if directory.exists() else ():
            if path.name == "model":
                assert content(path) == whole
            else:
                assert not loads(path)
        convert(source, directory / "model", "a16w8", overwrite=True)
        assert content(directory / "model") == whole
        assert [path.name for path in directory.iterdir()] == ["model"]
