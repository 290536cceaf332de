"""How many threads this process should use, and why: affinity, cgroup quota, physical cores.

Files are read through a function that is passed in, so that every arrangement is a test. Knows
nothing of pools.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = [
    "ThreadPlan",
    "cgroup_quota",
    "physical_cores",
    "processor_name",
    "read_text",
    "thread_plan",
]

ReadText = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """Number of threads to use and what it was derived from.

    `usable` is what the machine can run at once for this process; `quota` is in processors,
    None where no cgroup limits it.
    """

    threads: int
    usable: int
    affinity: int
    quota: float | None
    physical_cores: int
    reason: str


def read_text(path: str) -> str | None:
    """A file's text, None where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def processor_name(read: ReadText = read_text) -> str:
    """What the processor calls itself, or else its architecture."""
    for line in (read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def thread_plan(
    requested: int | None = None,
    *,
    affinity: Collection[int] | None = None,
    read: ReadText = read_text,
) -> ThreadPlan:
    """Threads for this process: `requested`, or as many as can run at once."""
    cpus = os.sched_getaffinity(0) if affinity is None else affinity
    quota, cores = cgroup_quota(read), len(physical_cores(cpus, read))
    allowed = len(cpus) if quota is None else max(1, math.floor(quota))
    usable = max(1, min(len(cpus), allowed, cores))
    limit = "no cgroup quota" if quota is None else f"cgroup quota of {quota:g} CPUs"
    found = f"affinity to {len(cpus)} CPUs, {cores} physical cores, {limit}"
    if requested is None:
        threads, reason = usable, f"the smallest of {found}"
    elif requested <= usable:
        threads, reason = requested, f"as requested; {usable} could run at once ({found})"
    else:
        threads = requested
        reason = f"as requested, but only {usable} can run at once ({found}): they will take turns"
    return ThreadPlan(threads, usable, len(cpus), quota, cores, reason)


def physical_cores(cpus: Collection[int], read: ReadText = read_text) -> list[list[int]]:
    """`cpus` by core: hyper-threads of one core stand together."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = read(f"{topology}/core_cpus_list") or read(f"{topology}/thread_siblings_list")
        cores.setdefault((siblings or "").strip() or f"cpu{cpu}", []).append(cpu)
    return list(cores.values())


class _Mount(NamedTuple):
    """A mounted cgroup hierarchy: the part of it below `root` is visible at `point`."""

    root: str
    point: str
    version: int
    options: frozenset[str]


def cgroup_quota(read: ReadText = read_text) -> float | None:
    """Processors that the cgroups of this process allow: the least of all levels, or None."""
    mounts = list(_mounts(read("/proc/self/mountinfo") or ""))
    found: list[float] = []
    for line in (read("/proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for mount in mounts:
            if mount.version == 2 and hierarchy == "0" and not controllers:
                found += _quotas(mount, path, read, _quota_v2)
            elif mount.version == 1 and "cpu" in controllers.split(",") and "cpu" in mount.options:
                found += _quotas(mount, path, read, _quota_v1)
    return min(found, default=None)


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    # 36 35 98:0 /root /point rw,noatime master:1 - type source options; see proc(5).
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, filesystem = before.split(), after.split()
        if not dash or len(fields) < 5 or not filesystem or "cgroup" not in filesystem[0]:
            continue
        options = frozenset(filesystem[-1].split(","))
        version = 2 if filesystem[0] == "cgroup2" else 1
        yield _Mount(_unescaped(fields[3]), _unescaped(fields[4]), version, options)


def _unescaped(path: str) -> str:
    """mountinfo writes spaces and the like in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _quotas(
    mount: _Mount, path: str, read: ReadText, quota: Callable[[str, ReadText], float | None]
) -> Iterator[float]:
    """Limits of the process's group and of each group above it that can be seen."""
    group, root = PurePosixPath(path), PurePosixPath(mount.root)
    # In a container the mount may show the process's own group as its top, or the path may lie
    # outside of what is visible: then the top is all there is to look at.
    inside = group.relative_to(root).parts if group.is_relative_to(root) else ()
    levels = () if ".." in inside else inside
    for depth in range(len(levels) + 1):
        found = quota(str(PurePosixPath(mount.point, *levels[:depth])), read)
        if found is not None:
            yield found


def _quota_v2(directory: str, read: ReadText) -> float | None:
    words = (read(f"{directory}/cpu.max") or "").split()
    return _ratio(words[0], words[1]) if len(words) == 2 else None


def _quota_v1(directory: str, read: ReadText) -> float | None:
    quota = read(f"{directory}/cpu.cfs_quota_us") or ""
    return _ratio(quota.strip(), (read(f"{directory}/cpu.cfs_period_us") or "").strip())


def _ratio(quota: str, period: str) -> float | None:
    """quota / period; None for "max", "-1" and whatever is not a positive number."""
    if not (quota.isdigit() and period.isdigit()) or int(quota) == 0 or int(period) == 0:
        return None
    return int(quota) / int(period)
