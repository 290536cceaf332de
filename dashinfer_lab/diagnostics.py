"""What a bug report needs of this machine and installation; knows no model and no terminal."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from importlib import metadata

from dashinfer_lab import __version__
from dashinfer_lab.config import cache_root, embedded_override
from jit_kernels.autotune import ChoiceStore
from jit_kernels.isa import detect, host_features
from jit_kernels.runtime.topology import processor_name, read_text, thread_plan

__all__ = ["diagnose"]

_PACKAGES = ("numpy", "llvmlite", "onnx", "onnx_ir", "gguf", "tokenizers")
_MEMORY_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def diagnose() -> dict[str, Mapping[str, object]]:
    """Facts by topic: instruction set, threads and why, memory, weights, versions, places.

    Raises `IsaError` where no instruction set can be used.
    """
    return {
        "cpu": _cpu(),
        "threads": _threads(),
        "memory": _memory(),
        "weights": _weights(),
        "schedules": {"stored": len(ChoiceStore(cache_root() / "schedules"))},
        "versions": _versions(),
        "paths": _paths(),
    }


def _cpu() -> dict[str, object]:
    isa = detect()
    return {
        "isa": isa.name,
        "model": processor_name(),
        "llvm_cpu": isa.cpu,
        "vector_bits": 8 * isa.vector_bytes,
        "dot": isa.dot,
        "features": sorted(name for name, on in host_features().items() if on),
    }


def _threads() -> dict[str, object]:
    plan = thread_plan()
    return {
        "threads": plan.threads,
        "reason": plan.reason,
        "affinity": plan.affinity,
        "physical_cores": plan.physical_cores,
        "cgroup_quota": plan.quota,
    }


def _memory() -> dict[str, object]:
    import psutil

    memory = psutil.virtual_memory()
    return {
        "total_mb": memory.total // 1_000_000,
        "available_mb": memory.available // 1_000_000,
        "cgroup_limit_mb": _memory_limit_mb(read_text),
    }


def _memory_limit_mb(read: Callable[[str], str | None]) -> int | None:
    """What a container allows; None without a limit, which version 1 spells as a huge number."""
    for path in _MEMORY_LIMITS:
        limit = (read(path) or "").strip()
        if limit.isdigit() and int(limit) < 1 << 60:
            return int(limit) // 1_000_000
    return None


def _weights() -> dict[str, object]:
    from dashinfer_lab.engine.auto_weights import rule

    return {"auto": rule()}


def _versions() -> dict[str, object]:
    from llvmlite import binding

    return {
        "dashinfer_lab": __version__,
        "python": platform.python_version(),
        "llvm": ".".join(map(str, binding.llvm_version_info)),
        **{name: _version(name) for name in _PACKAGES},
        "system": platform.platform(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _paths() -> dict[str, object]:
    root = cache_root()
    existing = next(path for path in (root, *root.parents) if path.exists())
    override = embedded_override()
    paths: dict[str, object] = {
        "cache": str(root),
        "cache_is_writable": existing.is_dir() and os.access(existing, os.W_OK),
        "cache_free_mb": shutil.disk_usage(existing).free // 1_000_000,
    }
    return paths if override is None else {**paths, "embedded_model": str(override)}
