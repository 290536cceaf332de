"""Buffers, threads and programs: what runs compiled kernels."""

from __future__ import annotations

from jit_kernels.runtime.buffers import aligned
from jit_kernels.runtime.program import (
    CLAIM_COUNTER,
    Argument,
    Barrier,
    MachineCode,
    Operation,
    Profile,
    Program,
)
from jit_kernels.runtime.threads import Pool
from jit_kernels.runtime.topology import ThreadPlan, thread_plan

__all__ = [
    "CLAIM_COUNTER",
    "Argument",
    "Barrier",
    "MachineCode",
    "Operation",
    "Pool",
    "Profile",
    "Program",
    "ThreadPlan",
    "aligned",
    "thread_plan",
]
