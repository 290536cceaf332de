"""Texts and costs of kernels for the viewer: variants of a model, work of a call; shows nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling import ChunkSpan, OpProfile, ProfiledOp, StepShape, Work

if TYPE_CHECKING:
    from jit_kernels.kernel import Kernel

__all__ = ["VIEWS", "Case", "KernelView", "ops_of", "text_of", "variants", "work_cases"]

KernelView = Literal["source", "ir", "llvm", "asm"]
VIEWS: Final[tuple[KernelView, ...]] = ("source", "ir", "llvm", "asm")
DECODE_POSITION: Final = 511
PREFILL_TOKENS: Final = 128


def ops_of(source: Any) -> tuple[ProfiledOp, ...]:
    """The operations of an `LLM`'s program or of a profile; none of None. Raises `ConfigError`."""
    if source is None:
        return ()
    if isinstance(source, OpProfile):
        return source.ops
    if not hasattr(source, "profiling"):
        raise ConfigError(f"{source!r:.80} has no kernels: give an LLM or an OpProfile")
    with source.profiling() as recorder:
        return recorder.ops


def variants(ops: Iterable[ProfiledOp], kernel: str) -> dict[str, ProfiledOp]:
    """The first operation of each specialisation of `kernel`, by its name."""
    found: dict[object, ProfiledOp] = {}
    for op in ops:
        if op.kernel == kernel:
            found.setdefault(tuple(sorted((op.constants or {}).items())), op)
    return {op.name: op for op in found.values()}


def text_of(kernel: Kernel, view: KernelView, isa_name: str, op: ProfiledOp | None) -> str:
    """Source, IR or assembly; without `op` only of what needs no constants (`TraceError`)."""
    if view == "source":
        return kernel.source
    from jit_kernels.isa import detect, record
    from jit_kernels.kernels.linear_tiles import row_tile

    isa = detect() if isa_name == detect().name else record(isa_name)
    constants = dict((op.constants if op is not None else None) or {})
    if "row_tile" in kernel.constants:
        constants["row_tile"] = row_tile(isa)
    return kernel.show(view, isa, **constants)


@dataclass(frozen=True, slots=True)
class Case:
    """What a call does in one kind of step; the work is None where it is not counted."""

    kind: Literal["decode", "prefill"]
    work: Work | None


def work_cases(op: ProfiledOp) -> Sequence[Case]:
    """A decode step of one request, and a prefill."""
    from dashinfer_lab.profiling.work import work_of

    decode = ChunkSpan(0, DECODE_POSITION, 1, True, True, 0.0)
    prefill = ChunkSpan(0, 0, PREFILL_TOKENS, False, True, 0.0)
    return [
        Case("decode", work_of(op, StepShape((decode,), 1))),
        Case("prefill", work_of(op, StepShape((prefill,), 1))),
    ]
