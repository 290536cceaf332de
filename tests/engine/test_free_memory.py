"""What is free counts a container's limit, not only the machine's memory."""

from __future__ import annotations

import psutil
import pytest

from dashinfer_lab.free_memory import available_bytes

V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
MACHINE = psutil.virtual_memory().total


@pytest.mark.parametrize(
    "files",
    [
        {
            f"{V2}/memory.max": "6000\n",
            f"{V2}/memory.current": "4000\n",
            f"{V2}/memory.stat": "anon 3000\nfile 1000\ninactive_file 700\nactive_file 300\n",
        },
        {
            f"{V1}/memory.limit_in_bytes": "6000\n",
            f"{V1}/memory.usage_in_bytes": "4000\n",
            f"{V1}/memory.stat": "inactive_file 0\ntotal_inactive_file 700\n",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_a_container_leaves_its_limit_less_what_cannot_go(files: dict[str, str]) -> None:
    assert available_bytes(files.get) == 6000 - 4000 + 700


def test_a_container_beyond_its_limit_leaves_nothing() -> None:
    files = {f"{V2}/memory.max": "10", f"{V2}/memory.current": "20"}

    assert available_bytes(files.get) == 0


@pytest.mark.parametrize("limit", ["max", str((1 << 63) - 4096), ""])
def test_without_a_limit_the_machine_decides(limit: str) -> None:
    files = {f"{V2}/memory.max": limit, f"{V2}/memory.current": "20"}

    assert 1 << 20 < available_bytes(files.get) <= MACHINE
