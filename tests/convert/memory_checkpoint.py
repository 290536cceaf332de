"""A checkpoint held in memory, and tiny Llamas to fill it with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ModelConfig, RopeConfig
from dashinfer_lab.hub.checkpoint import bytes_by_type
from dashinfer_lab.models import build_graph
from dashinfer_lab.quantize import Scheme
from dashinfer_lab.tensor import TensorInfo


@dataclass
class MemoryCheckpoint:
    """Tensors by name, with a config as Hugging Face spells it."""

    config: Mapping[str, object]
    tensors: dict[str, NDArray[Any]]
    source: str = "tiny"
    revision: str = "r1"
    licence: str | None = "apache-2.0"
    reads: list[tuple[str, int]] = field(default_factory=list)

    def names(self) -> Sequence[str]:
        return list(self.tensors)

    def stored_bytes(self) -> Mapping[str, int]:
        return bytes_by_type((t.dtype.name, t.nbytes) for t in self.tensors.values())

    def info(self, name: str) -> TensorInfo:
        return TensorInfo(self.tensors[name].shape, self.tensors[name].dtype.name)

    def read(self, name: str, rows: slice | None = None) -> NDArray[Any]:
        part = self.tensors[name][rows if rows is not None else slice(None)].copy()
        self.reads.append((name, part.nbytes))
        return part

    def write_tokenizer(self, directory: Path) -> None:
        (directory / "tokenizer.json").write_text("{}", encoding="utf-8")

    def close(self) -> None:
        pass


def tiny_config(**changes: Any) -> ModelConfig:
    """Sizes that are multiples of nothing convenient; 2 layers, grouped queries."""
    sizes: dict[str, Any] = {
        "model_type": "llama",
        "vocab_size": 101,
        "hidden_size": 60,
        "intermediate_size": 150,
        "num_layers": 2,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 10,
        "norm_eps": 1e-5,
        "context_length": 40,
        "rope": RopeConfig(theta=500.0),
        "tie_word_embeddings": True,
    }
    return ModelConfig(**{**sizes, **changes})


def tiny_checkpoint(config: ModelConfig, dtype: Any = np.float32) -> MemoryCheckpoint:
    """A Llama of random weights in `dtype`."""
    random = np.random.default_rng(7)
    tensors: dict[str, NDArray[Any]] = {}
    for weight in build_graph(config, Scheme.parse("fp32")).weights:
        values = random.standard_normal(weight.shape) / np.sqrt(weight.shape[-1])
        tensors[weight.name] = (values + (weight.role == "norm")).astype(dtype)
    return MemoryCheckpoint(hugging_face_config(config), tensors)


def hugging_face_config(config: ModelConfig) -> dict[str, object]:
    """Spell `config` as config.json does."""
    return {
        "model_type": config.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.context_length,
        "rope_theta": config.rope.theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "hidden_act": "silu",
    }
