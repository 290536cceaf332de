"""Rewrites of the operation list, one a file; each keeps the meaning and leaves less to compute.

Order matters: residuals and SwiGLU are found on single linears, then siblings fuse, and only then
do int8 keys lose their bias, as siblings that fuse are biased alike. Rows are left out at the end.
"""

from __future__ import annotations

from dashinfer_lab.lower.passes.drop_key_bias import drop_key_bias
from dashinfer_lab.lower.passes.fuse_experts import fuse_experts
from dashinfer_lab.lower.passes.fuse_post_norm import fuse_post_norm
from dashinfer_lab.lower.passes.fuse_residual import fuse_residual
from dashinfer_lab.lower.passes.fuse_rope import fuse_rope
from dashinfer_lab.lower.passes.fuse_siblings import fuse_siblings
from dashinfer_lab.lower.passes.fuse_swiglu import fuse_swiglu
from dashinfer_lab.lower.passes.keep_logit_rows import keep_logit_rows

__all__ = [
    "drop_key_bias",
    "fuse_experts",
    "fuse_post_norm",
    "fuse_residual",
    "fuse_rope",
    "fuse_siblings",
    "fuse_swiglu",
    "keep_logit_rows",
]
