"""Writes tests/hub/dashinfer_files in an environment that has DashInfer 1.3.0 and torch.

Prints what its engine draws after PROMPT: `Case.drawn`.

cd tests/hub && PYTHON_OF_THAT_ENVIRONMENT generate_dashinfer_files.py [CASE ...]
"""

from __future__ import annotations

import os
import sys

import torch
from dashinfer import allspark
from dashinfer.allspark.quantization import QuantizeConfig
from dashinfer_models import CASES, HEAD_DIM, PROMPT, Case, config_of, weights_of


def serialise(engine: allspark.Engine, name: str, case: Case) -> None:
    kind = getattr(torch, case.data_type)
    weights = {key: torch.from_numpy(value).to(kind) for key, value in weights_of(case).items()}
    if case.tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    if case.model_type == "chatglm":
        weights["transformer.rotary_pos_emb.inv_freq"] = torch.ones(HEAD_DIM // 4, dtype=kind)
    quantisation = None
    if case.weight_type is not None:
        groups = {"SubChannel": case.group_size is not None, "GroupSize": case.group_size or 512}
        quantisation = QuantizeConfig("bfloat16", case.weight_type, extra_option=groups)
    engine.serialize_model_from_torch(
        model_name="tiny",
        model_type=case.dashinfer_type,
        torch_model=weights,
        model_config={**config_of(case), "size_per_head": HEAD_DIM},
        save_dir=name,
        multinode_mode=False,
        data_type=case.data_type,
        do_dynamic_quantize_convert=quantisation is not None,
        quant_config=quantisation,
        model_sequence_length=256,
        rotary_base=case.rope_theta,
        use_dynamic_ntk=case.model_type == "qwen",
        use_logn_attn=case.model_type == "qwen",
    )


def drawn(engine: allspark.Engine, name: str, count: int) -> list[int]:
    """The likeliest tokens after PROMPT, one after another."""
    model = allspark.AsModelConfig(
        model_name="tiny", model_path=f"{name}/tiny.dimodel",
        weights_path=f"{name}/tiny.ditensors", engine_max_length=256, engine_max_batch=1,
        num_threads=1, matmul_precision="highest", compute_unit="CPU:0",
    )  # fmt: skip
    engine.build_model_from_config_struct(model)
    engine.start_model("tiny")
    ids = torch.tensor([PROMPT], dtype=torch.int64)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    length = len(PROMPT) + count
    options = {"top_k": 1, "max_length": length, "min_length": length, "eos_token_id": -1,
               "do_sample": False, "num_beams": 1, "early_stopping": True}  # fmt: skip
    inputs = {key: torch.utils.dlpack.to_dlpack(value) for key, value in given.items()}
    _, handle, queue = engine.start_request("tiny", inputs, generate_config=options)
    tokens: list[int] = []
    while (found := queue.Get()) is not None:
        tokens += found.ids_from_generate
    engine.release_request("tiny", handle)
    engine.stop_model("tiny")
    engine.release_model("tiny")
    return tokens


if __name__ == "__main__":
    os.chdir("dashinfer_files")
    engine = allspark.Engine()
    for name in sys.argv[1:] or CASES:
        serialise(engine, name, CASES[name])
        if CASES[name].drawn:
            found = drawn(engine, name, len(CASES[name].drawn))
            sys.stdout.write(f"{name}: {found}\n")
