from __future__ import annotations

from collections.abc import Callable

import pytest

from jit_kernels.runtime.topology import cgroup_quota, physical_cores, thread_plan

V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)


def reader(contents: dict[str, str]) -> Callable[[str], str | None]:
    return contents.get


def v2(path: str, limits: dict[str, str], mount: str = V2_MOUNT) -> Callable[[str], str | None]:
    """A machine with cgroup v2, this process in `path`, `limits` by directory."""
    return reader(
        {
            "/proc/self/cgroup": f"0::{path}\n",
            "/proc/self/mountinfo": "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mount,
            **{f"/sys/fs/cgroup{where}/cpu.max": text for where, text in limits.items()},
        }
    )


def v1(path: str, limits: dict[str, tuple[str, str]]) -> dict[str, str]:
    contents = {
        "/proc/self/cgroup": f"5:cpuset:/elsewhere\n4:cpu,cpuacct:{path}\n1:name=systemd:/\n",
        "/proc/self/mountinfo": V1_MOUNT,
    }
    for where, (quota, period) in limits.items():
        directory = f"/sys/fs/cgroup/cpu,cpuacct{where}"
        contents[f"{directory}/cpu.cfs_quota_us"] = quota
        contents[f"{directory}/cpu.cfs_period_us"] = period
    return contents


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000\n", None),
        ("150000 100000\n", 1.5),
        ("50000 100000\n", 0.5),
        ("400000 100000", 4.0),
        ("", None),
        ("100000", None),
        ("soon 100000\n", None),
        ("100000 0\n", None),
    ],
)
def test_cpu_max_of_cgroup_v2_is_quota_over_period(text: str, expected: float | None) -> None:
    assert cgroup_quota(v2("/job", {"/job": text})) == expected


def test_the_tightest_of_nested_cgroups_counts() -> None:
    limits = {"/a": "max 100000\n", "/a/b": "200000 100000\n", "/a/b/c": "800000 100000\n"}

    assert cgroup_quota(v2("/a/b/c", limits)) == 2.0


def test_a_cgroup_namespace_shows_its_own_root() -> None:
    assert cgroup_quota(v2("/", {"": "300000 100000\n"})) == 3.0


def test_a_container_without_namespace_finds_its_group_at_the_mount() -> None:
    mount = "30 24 0:26 /docker/f00d /sys/fs/cgroup ro - cgroup2 cgroup rw\n"

    assert cgroup_quota(v2("/docker/f00d", {"": "250000 100000\n"}, mount)) == 2.5
    assert cgroup_quota(v2("/docker/f00d/x", {"/x": "100000 100000\n"}, mount)) == 1.0


def test_a_group_outside_of_what_is_mounted_looks_at_the_top() -> None:
    assert cgroup_quota(v2("/../other", {"": "200000 100000\n"})) == 2.0


def test_a_mount_point_may_hold_a_space() -> None:
    contents = {
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": "30 24 0:26 / /my\\040cgroup rw - cgroup2 cgroup2 rw\n",
        "/my cgroup/cpu.max": "100000 50000\n",
    }

    assert cgroup_quota(reader(contents)) == 2.0


@pytest.mark.parametrize(
    ("quota", "expected"), [("-1\n", None), ("150000\n", 1.5), ("0\n", None), ("", None)]
)
def test_cgroup_v1_has_quota_and_period_in_two_files(quota: str, expected: float | None) -> None:
    assert cgroup_quota(reader(v1("/job", {"/job": (quota, "100000\n")}))) == expected


def test_cgroup_v1_groups_nest_too() -> None:
    limits = {"": ("-1", "100000"), "/a": ("200000", "100000"), "/a/b": ("-1", "100000")}

    assert cgroup_quota(reader(v1("/a/b", limits))) == 2.0


def test_a_hybrid_machine_takes_the_controller_where_it_is() -> None:
    contents = v1("/job", {"/job": ("300000", "100000")})
    contents["/proc/self/cgroup"] += "0::/job\n"
    contents["/proc/self/mountinfo"] += (
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )

    assert cgroup_quota(reader(contents)) == 3.0


def test_a_machine_without_cgroups_has_no_quota() -> None:
    assert cgroup_quota(reader({})) is None


def siblings(*groups: str) -> dict[str, str]:
    """Topology files of cores whose hyper-threads are "0,4"-like groups."""
    return {
        f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{group}\n"
        for group in groups
        for cpu in group.split(",")
    }


def test_hyper_threads_of_one_core_count_once() -> None:
    read = reader(siblings("0,4", "1,5", "2,6", "3,7"))

    assert physical_cores(range(8), read) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert physical_cores([0, 4], read) == [[0, 4]]
    assert physical_cores([1, 4, 5], read) == [[1, 5], [4]]


def test_processors_without_topology_count_as_cores() -> None:
    assert physical_cores([0, 1, 9], reader({})) == [[0], [1], [9]]


@pytest.mark.parametrize(
    ("affinity", "quota", "expected"),
    [(8, "max 100000", 4), (8, "250000 100000", 2), (8, "50000 100000", 1), (1, "max 100000", 1)],
)
def test_threads_are_what_can_run_at_once(affinity: int, quota: str, expected: int) -> None:
    contents = siblings("0,4", "1,5", "2,6", "3,7") | {
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": V2_MOUNT,
        "/sys/fs/cgroup/cpu.max": quota,
    }
    plan = thread_plan(affinity=range(affinity), read=reader(contents))

    assert (plan.threads, plan.usable) == (expected, expected)
    assert f"affinity to {affinity} CPUs" in plan.reason


def test_the_reason_names_the_quota() -> None:
    plan = thread_plan(affinity=range(8), read=v2("/", {"": "250000 100000\n"}))

    assert plan.quota == 2.5
    assert "cgroup quota of 2.5 CPUs" in plan.reason


def test_a_request_within_reach_is_honoured() -> None:
    plan = thread_plan(3, affinity=range(8), read=reader({}))

    assert (plan.threads, plan.usable) == (3, 8)
    assert plan.reason.startswith("as requested; 8 could run at once")


def test_a_request_beyond_the_machine_is_honoured_and_said() -> None:
    plan = thread_plan(9, affinity=range(8), read=reader({}))

    assert (plan.threads, plan.usable) == (9, 8)
    assert "only 8 can run at once" in plan.reason


def test_this_machine_gives_a_plan() -> None:
    plan = thread_plan()

    assert 1 <= plan.threads == plan.usable <= plan.affinity
