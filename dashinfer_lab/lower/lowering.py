"""An artifact's graph to a `ProgramPlan`: translate, rewrite, select kernels, place buffers.

Reads the saved ONNX alone; knows nothing of model files, threads or addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.serialize import load_graph
from dashinfer_lab.lower.arena import place
from dashinfer_lab.lower.check import check_sizes
from dashinfer_lab.lower.kernel_table import workspace_bytes
from dashinfer_lab.lower.ops import Op, num_experts
from dashinfer_lab.lower.passes import (
    drop_key_bias,
    fuse_experts,
    fuse_post_norm,
    fuse_residual,
    fuse_rope,
    fuse_siblings,
    fuse_swiglu,
    keep_logit_rows,
)
from dashinfer_lab.lower.plan import PlanLimits, ProgramPlan
from dashinfer_lab.lower.select import select_kernels
from dashinfer_lab.lower.translate import translate

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact

__all__ = ["lower", "lowered_ops"]

_SCALE_FORMATS = {"F16": "f16", "F32": "f32"}


def lowered_ops(artifact: Artifact) -> list[Op]:
    """The artifact's operations after all rewrites. Raises ArtifactError."""
    model = load_graph(artifact.graph_path, artifact.tensors)
    try:
        translated = translate(model)
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{artifact.graph_path}: a node is not as `convert` writes it ({error!r:.200}); "
            "re-convert the model"
        ) from error
    check_sizes(translated, artifact.tensors, artifact.config)
    ops = fuse_rope(fuse_swiglu(fuse_post_norm(fuse_residual(fuse_experts(translated)))))
    return fuse_siblings(ops, artifact.tensors)


def lower(artifact: Artifact, limits: PlanLimits) -> ProgramPlan:
    """The program that runs `artifact` within `limits`."""
    ops = lowered_ops(artifact)
    if limits.kv_format == "int8":
        ops = drop_key_bias(ops)
    ops = keep_logit_rows(ops)
    scale_formats = {
        name: _SCALE_FORMATS[tensor.dtype]
        for name, tensor in artifact.tensors.items()
        if tensor.dtype in _SCALE_FORMATS
    }
    selection = select_kernels(ops, limits, scale_formats)
    buffers, arena_bytes = place(selection.ops, selection.sizes)
    config = artifact.config
    return ProgramPlan(
        ops=tuple(selection.ops),
        buffers=buffers,
        arena_bytes=arena_bytes,
        workspace_bytes=workspace_bytes(
            config.head_dim, config.num_heads // config.num_kv_heads, config.vocab_size
        ),
        limits=limits,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        logits_stride=selection.logits_stride,
        weight_bytes_per_token=_bytes_per_token(ops, artifact),
    )


def _bytes_per_token(ops: list[Op], artifact: Artifact) -> int:
    """Bytes of all linear weights and, of experts, of as many as one token meets."""
    total = 0
    for op in ops:
        if op.kind in ("linear", "experts"):
            names = [n for w in op["weights"] for n in (w.panels, w.scale, w.minimum) if n]
            num_bytes = sum(artifact.tensors[name].num_bytes for name in names)
            met = op["top_k"] / num_experts(op) if op.kind == "experts" else 1
            total += round(num_bytes * met)
    return total
