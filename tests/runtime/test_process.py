"""What needs a process of its own: limits, forks, exits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
import os, resource, sys
import numpy as np
from jit_kernels.errors import RuntimeFault
from jit_kernels.runtime import Operation, Pool, Program
from tests.runtime.compiled import compiled, compiler, count_visits
visits = np.zeros(256, np.int64)
code = compiled(count_visits)
def step(pool):
    Program(pool, [Operation(code, (visits,))]).run()
"""


def output_of(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_thread_that_cannot_start_is_named_and_the_others_end() -> None:
    # Every thread reserves a stack of megabytes: a few fit below the limit, 255 do not.
    printed = output_of("""
Pool(1, compiler()).close()
threads = len(os.listdir("/proc/self/task"))
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    Pool(256, compiler())
except RuntimeFault as fault:
    print(fault)
while len(os.listdir("/proc/self/task")) != threads:
    os.sched_yield()
with Pool(2, compiler()) as pool:
    step(pool)
print(visits[:3].tolist())
""")

    assert "cannot start worker " in printed
    assert " of 256: pthread_create says " in printed
    assert "[1, 1, 0]" in printed


def test_a_forked_child_is_told_that_it_has_no_threads() -> None:
    printed = output_of("""
pool = Pool(2, compiler())
step(pool)
child = os.fork()
if child == 0:
    try:
        step(pool)
    except RuntimeFault as fault:
        print(fault)
    with Pool(2, compiler()) as own:
        step(own)
    print("child", visits[:2].tolist(), flush=True)
    pool.close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
step(pool)
print("parent", status, visits[:2].tolist())
""")

    assert "create the pool after forking" in printed
    assert "child [2, 2]" in printed
    assert "parent 0 [2, 2]" in printed


def test_a_process_may_end_without_closing_its_pools() -> None:
    printed = output_of("""
first, second = Pool(2, compiler()), Pool(3, compiler(), spin=0)
step(first), step(second)
print(visits[:4].tolist())
""")

    assert printed == "[2, 2, 1, 0]\n"
