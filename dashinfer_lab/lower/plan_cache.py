"""The lowered program beside its artifact, so that a warm start reads no ONNX.

A plan depends on the graph, the sizes it was made for, and the code that makes plans: all of it is
in the file's name. A plan that cannot be read is made anew; one that cannot be written is not.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.lower.plan import PlanLimits, ProgramPlan
from dashinfer_lab.lower.plan_json import plan_from_json, plan_to_json
from jit_kernels.compiler.fingerprint import source_fingerprint

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact

__all__ = ["cached_plan"]

_DIRECTORY = "lowered"


def cached_plan(artifact: Artifact, limits: PlanLimits, elsewhere: Path) -> ProgramPlan:
    """The plan for `artifact` within `limits`, from disk where it is there.

    Kept in the artifact's directory, or under `elsewhere` where that is read-only.
    """
    name = f"{_key(artifact, limits)}.json"
    places = (artifact.directory / _DIRECTORY / name, elsewhere / name)
    for path in places:
        found = _read(path)
        if found is not None:
            return found
    from dashinfer_lab.lower.lowering import lower

    plan = lower(artifact, limits)
    for path in places:
        if _write(path, plan_to_json(plan)):
            break
    return plan


def _key(artifact: Artifact, limits: PlanLimits) -> str:
    import jit_kernels

    kernels = Path(jit_kernels.__file__).parent
    parts = (
        artifact.metadata["graph_sha256"],
        artifact.identity,
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


def _write(path: Path, text: str) -> bool:
    """Write atomically; False where the place is not writable."""
    content = f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, suffix=".part", delete=False
        ) as file:
            file.write(content)
        Path(file.name).replace(path)
    except OSError:
        return False
    return True
