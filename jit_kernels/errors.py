"""The errors of the kernel library, one tree.

JitKernelsError
├── IsaError           the machine lacks, or the override names, an unusable instruction set
├── TraceError         a kernel's body asked for something the DSL does not allow
├── CompileError       LLVM refused a module
├── ShapeError         operands do not fit a kernel's contract
└── RuntimeFault       the worker pool or a program cannot run
"""

from __future__ import annotations

__all__ = [
    "CompileError",
    "IsaError",
    "JitKernelsError",
    "RuntimeFault",
    "ShapeError",
    "TraceError",
]


class JitKernelsError(Exception):
    """Any error this package raises on purpose."""


class IsaError(JitKernelsError):
    """The instruction set asked for is unknown or cannot run here."""


class TraceError(JitKernelsError):
    """A kernel's body asked for something the DSL does not allow."""


class CompileError(JitKernelsError):
    """LLVM refused a module."""


class ShapeError(JitKernelsError):
    """Operands do not fit a kernel's contract."""


class RuntimeFault(JitKernelsError):
    """The worker pool or a program cannot run."""
