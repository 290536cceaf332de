"""Baichuan in transformers, which has no class for it: a Llama, and ALiBi as a mask given to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.model.family_cases import FamilyCase
from tests.oracle.relaid import written

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["add_alibi", "baichuan_as_llama"]


def baichuan_as_llama(case: FamilyCase, directory: Path) -> Path:
    """Lay Baichuan out as a Llama: q, k and v apart, and the second's head of rows of length 1.

    Where it has ALiBi, positions are stretched until nothing turns.
    """
    is_second = "z_loss_weight" in case.config
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in case.tensors().items():
        if name == "lm_head.weight" and is_second:
            lengths = np.linalg.norm(tensor.astype(np.float64), axis=1, keepdims=True)
            tensors[name] = (tensor / lengths).astype(np.float32)
        elif "W_pack" in name:
            for part, rows in zip("qkv", np.split(tensor, 3), strict=True):
                tensors[name.replace("W_pack", f"{part}_proj")] = np.ascontiguousarray(rows)
        else:
            tensors[name] = tensor
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": 10000.0}
    if is_second:
        rope |= {"rope_type": "linear", "factor": 1e12}
    config = {
        **case.whole_config(),
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": case.config["model_max_length"],
        "rope_parameters": rope,
    }
    return written(config, tensors, directory)


def add_alibi(model: PreTrainedModel) -> None:
    """Give every call the mask that lowers scores with distance (Press et al. 2022, sec. 3)."""
    import torch

    slopes = torch.tensor(_slopes(model.config.num_attention_heads))

    def with_mask(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        length = args[0].shape[1]
        distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        mask = -slopes[:, None, None] * distance
        mask = mask.masked_fill(distance < 0, torch.finfo(torch.float32).min)
        return args, {**kwargs, "attention_mask": mask[None]}

    model.register_forward_pre_hook(with_mask, with_kwargs=True)


def _slopes(num_heads: int) -> list[float]:
    """Slopes as the paper's own code picks them, by recursion."""
    if num_heads & (num_heads - 1) == 0:
        start = 2.0 ** (-(2.0 ** -(num_heads.bit_length() - 1 - 3)))
        return [start ** (head + 1) for head in range(num_heads)]
    power = 1 << (num_heads.bit_length() - 1)
    return _slopes(power) + _slopes(2 * power)[0::2][: num_heads - power]
