"""The weights of an artifact as plain float32 arrays, unpacked and dequantised one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.convert import Artifact
from jit_kernels.panels import from_bf16, unpack_bf16, unpack_f32, unpack_groups, unpack_u8

__all__ = ["ArtifactWeights"]


class ArtifactWeights(Mapping[str, NDArray[np.float32]]):
    """Weights [N, K] under checkpoint names, of an artifact whose groups all have one size."""

    def __init__(self, artifact: Artifact, group_size: int = 64) -> None:
        self._artifact = artifact
        self._group_size = group_size

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        if name not in self._artifact.tensors:
            raise KeyError(name)
        stored = self._artifact.tensor(name)
        if stored.ndim == 1:
            return stored
        n, k = _shape(self._artifact.config, name.removesuffix(".weight"))
        if stored.dtype == np.float32:
            return unpack_f32(stored, n)
        if stored.dtype == np.uint16:
            return from_bf16(unpack_bf16(stored, n, k))
        codes = unpack_u8(stored, n, k).astype(np.float32)
        return codes * self._per_weight(f"{name}.scale", n, k) + self._per_weight(
            f"{name}.minimum", n, k
        )

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._artifact.tensors if name.endswith((".weight", ".bias")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _per_weight(self, name: str, n: int, k: int) -> NDArray[np.float32]:
        groups = unpack_groups(self._artifact.tensor(name), n).astype(np.float32)
        return np.repeat(groups, self._group_size, axis=1)[:, :k]


def _shape(c: ModelConfig, path: str) -> tuple[int, int]:
    """N and K of the linear weight (or embedding) at `path`."""
    q_width, kv_width = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return {
        "embed_tokens": (c.vocab_size, c.hidden_size),
        "lm_head": (c.vocab_size, c.hidden_size),
        "q_proj": (q_width, c.hidden_size),
        "k_proj": (kv_width, c.hidden_size),
        "v_proj": (kv_width, c.hidden_size),
        "o_proj": (c.hidden_size, q_width),
        "gate_proj": (c.intermediate_size, c.hidden_size),
        "up_proj": (c.intermediate_size, c.hidden_size),
        "down_proj": (c.hidden_size, c.intermediate_size),
    }[path.rpartition(".")[2]]
