"""Which instructions the kernels may use: records, detection on this machine, override for tests.

A record is chosen by the features the processor *and* the operating system offer (LLVM's host
detection reads CPUID and XCR0), never by the processor's name: a virtual machine may mask what
the name implies. The only module of the package that reads `os.environ`.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from jit_kernels.errors import IsaError

__all__ = [
    "AVX2",
    "AVX512",
    "BASELINE",
    "ISA_NAMES",
    "NEON",
    "Isa",
    "detect",
    "host_features",
    "object_cache_directory",
    "record",
    "runnable",
]

DotPrimitive = Literal["pmaddwd", "vpdpwssd", "widen"]
_LINUX_X86 = "x86_64-unknown-linux-gnu"
_LINUX_ARM = "aarch64-unknown-linux-gnu"
_AVX2_FEATURES = ("avx2", "fma", "f16c", "bmi2")
_AVX512_FEATURES = (*_AVX2_FEATURES, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni")


@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction set as the code generator sees it.

    `vector_bytes` and `num_registers` size the tiles; `requires` are the LLVM features without
    which the record cannot run; `features` is the explicit string given to LLVM.
    """

    name: str
    triple: str
    cpu: str
    vector_bytes: int
    num_registers: int
    dot: DotPrimitive
    requires: tuple[str, ...] = ()
    features: str = ""

    @property
    def is_x86(self) -> bool:
        """Whether the record is for x86-64."""
        return self.triple.startswith("x86_64")

    @property
    def sums_quads_in_int16(self) -> bool:
        """Whether a dot product of four bytes passes through sums of two in int16 lanes."""
        return self.dot == "pmaddwd" and "avx2" in self.requires

    @property
    def float_lanes(self) -> int:
        """float32 lanes in one vector register."""
        return self.vector_bytes // 4


def _on(*features: str) -> str:
    return ",".join(f"+{feature}" for feature in features)


BASELINE = Isa("x86-64", _LINUX_X86, "x86-64", 16, 16, "pmaddwd", (), "+sse2")
AVX2 = Isa("avx2", _LINUX_X86, "x86-64-v3", 32, 16, "pmaddwd", _AVX2_FEATURES, _on(*_AVX2_FEATURES))
AVX512 = Isa(
    "avx512",
    _LINUX_X86,
    "x86-64-v4",
    64,
    32,
    "vpdpwssd",
    _AVX512_FEATURES,
    _on("prefer-256-bit", *_AVX512_FEATURES),
)
NEON = Isa("neon", _LINUX_ARM, "generic", 16, 32, "widen", ("neon",), "+neon")

# Best first: detection takes the first that runs.
_RECORDS = {isa.name: isa for isa in (AVX512, AVX2, BASELINE, NEON)}
ISA_NAMES = tuple(_RECORDS)


@lru_cache(maxsize=1)
def host_features() -> dict[str, bool]:
    """LLVM's features of this machine, by name."""
    from llvmlite import binding

    return {str(name): bool(on) for name, on in binding.get_host_cpu_features().items()}


def runnable(isa: Isa) -> bool:
    """Whether this machine can execute code for `isa`."""
    machine = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
    if machine.get(platform.machine().lower()) != isa.triple.partition("-")[0]:
        return False
    features = host_features()
    return all(features.get(feature, False) for feature in isa.requires)


def record(name: str) -> Isa:
    """The record called `name`; raises `IsaError` naming the known ones."""
    try:
        return _RECORDS[name]
    except KeyError:
        raise IsaError(f"unknown instruction set {name!r}; known: {', '.join(ISA_NAMES)}") from None


def _tuned_for_host(isa: Isa) -> Isa:
    """`isa` with LLVM's scheduling model of this processor, its features still explicit."""
    from llvmlite import binding

    masked = [f for f in host_features() if f.startswith(("avx512", "amx", "avx10"))]
    off = [f"-{feature}" for feature in sorted(masked) if feature not in isa.requires]
    return replace(
        isa, cpu=binding.get_host_cpu_name(), features=",".join([isa.features, *off]).strip(",")
    )


@lru_cache(maxsize=8)
def _detect(override: str | None) -> Isa:
    if override:
        chosen = record(override)
        if not runnable(chosen):
            missing = [f for f in chosen.requires if not host_features().get(f, False)]
            raise IsaError(
                f"JIT_KERNELS_ISA={override}: this machine lacks {', '.join(missing) or 'it'}; "
                f"unset it to use {_detect(None).name}"
            )
        return chosen if chosen is BASELINE else _tuned_for_host(chosen)
    for isa in _RECORDS.values():
        if runnable(isa):
            return isa if isa is BASELINE else _tuned_for_host(isa)
    raise IsaError(
        f"no instruction set for {platform.machine()}: x86-64 or aarch64 Linux is needed"
    )


def detect() -> Isa:
    """The best record this machine runs, or the one named by `JIT_KERNELS_ISA`."""
    return _detect(os.environ.get("JIT_KERNELS_ISA") or None)


def object_cache_directory() -> Path:
    """Directory for compiled objects: `JIT_KERNELS_CACHE`, else XDG's cache."""
    chosen = os.environ.get("JIT_KERNELS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "jit_kernels"
