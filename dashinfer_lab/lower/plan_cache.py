"""The lowered program in the user's cache, so that a warm start reads no ONNX.

A plan depends on the artifact's graph, tensors and configuration, the sizes it was made for, and
the code that makes plans: all of it is in the file's name. A plan that cannot be read is made anew;
one that cannot be written is not. None is read from the artifact's directory: a plan says which
memory kernels write to, and a model may come from anyone.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.hub.files import write_atomically
from dashinfer_lab.lower.plan import PlanLimits, ProgramPlan
from dashinfer_lab.lower.plan_json import plan_from_json, plan_to_json
from jit_kernels.compiler.fingerprint import source_fingerprint

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact

__all__ = ["cached_plan"]


def cached_plan(artifact: Artifact, limits: PlanLimits, directory: Path) -> ProgramPlan:
    """The plan for `artifact` within `limits`, from `directory` where it is there."""
    path = directory / f"{_key(artifact, limits)}.json"
    found = _read(path)
    if found is not None:
        return found
    from dashinfer_lab.lower.lowering import lower

    plan = lower(artifact, limits)
    text = plan_to_json(plan)
    content = f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}"
    with suppress(OSError):
        write_atomically(path, content.encode())
    return plan


def _key(artifact: Artifact, limits: PlanLimits) -> str:
    import jit_kernels

    kernels = Path(jit_kernels.__file__).parent
    parts = (
        artifact.metadata["graph_sha256"],
        repr(sorted(artifact.tensors.items())),
        repr(artifact.config),
        repr(limits),
        source_fingerprint(Path(__file__).parent),
        source_fingerprint(kernels),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _read(path: Path) -> ProgramPlan | None:
    """The plan at `path`; None where there is none, or a damaged one."""
    try:
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        intact = hashlib.sha256(text.encode()).hexdigest() == digest
        return plan_from_json(text) if intact else None
    except (OSError, ValueError):
        return None
