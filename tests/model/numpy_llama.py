"""The Llama forward pass in plain NumPy, one whole sequence at once (Touvron et al. 2023).

The reference of the tests that have no torch. Knows nothing of pages, panels or threads.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dashinfer_lab.config import ModelConfig

__all__ = ["llama_logits"]

Array = NDArray[np.floating]
Weights = Mapping[str, Array]


def llama_logits(
    config: ModelConfig, weights: Weights, token_ids: ArrayLike, dtype: type = np.float32
) -> Array:
    """Logits [T, vocab] in `dtype` arithmetic; weights [N, K] under checkpoint names."""
    rope = _rope(config, len(np.asarray(token_ids)), dtype)
    x = weights["model.embed_tokens.weight"][np.asarray(token_ids)].astype(dtype)
    for layer in range(config.num_layers):
        path = f"model.layers.{layer}"
        h = _rmsnorm(x, weights[f"{path}.input_layernorm.weight"], config.norm_eps)
        x = x + _attention(config, weights, f"{path}.self_attn", h, rope)
        h = _rmsnorm(x, weights[f"{path}.post_attention_layernorm.weight"], config.norm_eps)
        gate = _linear(weights, f"{path}.mlp.gate_proj", h)
        up = _linear(weights, f"{path}.mlp.up_proj", h)
        x = x + _linear(weights, f"{path}.mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
    x = _rmsnorm(x, weights["model.norm.weight"], config.norm_eps)
    return _linear(weights, "model.embed_tokens" if config.tie_word_embeddings else "lm_head", x)


def _attention(
    config: ModelConfig, weights: Weights, path: str, h: Array, rope: tuple[Array, Array]
) -> Array:
    """Causal attention of grouped queries; all keys of a query in one softmax."""
    length, head_dim = len(h), config.head_dim
    group = config.num_heads // config.num_kv_heads

    def heads(name: str, count: int) -> Array:
        flat = _linear(weights, f"{path}.{name}", h)
        return flat.reshape(length, count, head_dim).swapaxes(0, 1)

    q = _rotate(heads("q_proj", config.num_heads), rope)
    k = np.repeat(_rotate(heads("k_proj", config.num_kv_heads), rope), group, axis=0)
    v = np.repeat(heads("v_proj", config.num_kv_heads), group, axis=0)
    scores = q @ k.swapaxes(1, 2) / h.dtype.type(np.sqrt(head_dim))
    scores[:, np.triu(np.ones((length, length), bool), k=1)] = -np.inf
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (p / p.sum(axis=-1, keepdims=True)) @ v
    return _linear(weights, f"{path}.o_proj", mixed.swapaxes(0, 1).reshape(length, -1))


def _linear(weights: Weights, path: str, x: Array) -> Array:
    y = x @ weights[f"{path}.weight"].T.astype(x.dtype, copy=False)
    bias = weights.get(f"{path}.bias")
    return y if bias is None else y + bias.astype(x.dtype, copy=False)


def _rmsnorm(x: Array, weight: Array, eps: float) -> Array:
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + x.dtype.type(eps)) * weight.astype(x.dtype, copy=False)


def _rope(config: ModelConfig, length: int, dtype: type) -> tuple[Array, Array]:
    """Cosines and sines [T, D/2]; angles in float64: float32 is 4e-6 off at position 500."""
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    angles = np.outer(np.arange(length), config.rope.theta**-exponents)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def _rotate(x: Array, rope: tuple[Array, Array]) -> Array:
    cos, sin = rope
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
