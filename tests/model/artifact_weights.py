"""The weights of an artifact as plain float32 arrays, unpacked and dequantised one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.convert import Artifact
from dashinfer_lab.quantize import Scheme
from jit_kernels.panels import (
    from_bf16,
    group_length,
    unpack_bf16,
    unpack_f32,
    unpack_groups,
    unpack_u4,
    unpack_u8,
)

__all__ = ["ArtifactWeights"]


class ArtifactWeights(Mapping[str, NDArray[np.float32]]):
    """Weights [N, K] under checkpoint names."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._scheme = Scheme.parse(artifact.metadata["scheme"])

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
        four_bits = self._scheme.weights == "u4" and not _is_head(name)
        codes = (unpack_u4 if four_bits else unpack_u8)(stored, n, k).astype(np.float32)
        return codes * self._per_weight(f"{name}.scale", n, k) + self._per_weight(
            f"{name}.minimum", n, k
        )

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._artifact.tensors if name.endswith((".weight", ".bias")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _per_weight(self, name: str, n: int, k: int) -> NDArray[np.float32]:
        length = group_length(k, 64 if _is_head(name) else self._scheme.group_size)
        groups = unpack_groups(self._artifact.tensor(name), n).astype(np.float32)
        return np.repeat(groups, length, axis=1)[:, :k]


def _is_head(name: str) -> bool:
    return "embed_tokens" in name or "lm_head" in name


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
