"""DashInfer 1.3.0: its own conversion from the checkpoint's weights, then its engine, in fp32."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from dashinfer import allspark
from safetensors.torch import load_file
from serving import Decoded, serve

MODEL_TYPES = {"llama": "LLaMA_v2", "qwen2": "Qwen_v20"}
NAME = "peer"


class DashInfer:
    def __init__(self, request: dict[str, Any]) -> None:
        self._engine = allspark.Engine()
        self.version = self._engine.get_version_full()
        directory = Path(request["folder"]) / f"model-{request['fingerprint']}"
        if not (directory / f"{NAME}.dimodel").is_file():
            convert(self._engine, Path(request["checkpoint"]), directory)
        config = allspark.AsModelConfig(
            model_name=NAME,
            model_path=str(directory / f"{NAME}.dimodel"),
            weights_path=str(directory / f"{NAME}.ditensors"),
            engine_max_length=request["max_length"],
            engine_max_batch=request["max_batch"],
        )
        config.compute_unit = "CPU:0"
        config.num_threads = request["threads"]
        config.matmul_precision = "highest"
        config.cache_mode = allspark.AsCacheMode.AsCacheDefault
        config.prefill_mode = allspark.AsMHAPrefill.AsPrefillDefault
        self._engine.build_model_from_config_struct(config)
        self._engine.start_model(NAME)

    def prefill(self, prompt: list[int]) -> float:
        begin = time.perf_counter()
        handle, queue = self._start(prompt, 1)
        queue.Get()
        seconds = time.perf_counter() - begin
        self._engine.release_request(NAME, handle)
        return seconds

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        started = [self._start(prompt, new_tokens) for prompt in prompts]
        queues = [queue for _, queue in started]
        ids = [list(queue.Get().ids_from_generate) for queue in queues]
        begin = time.perf_counter()
        for queue, one in zip(queues, ids, strict=True):  # those before the last are further
            while (more := queue.GetNoWait()) is not None and more.ids_from_generate:
                one.extend(more.ids_from_generate)
        known = sum(len(one) for one in ids)
        for queue, one in zip(queues, ids, strict=True):
            while len(one) < new_tokens:
                one.extend(queue.Get().ids_from_generate)
        seconds = time.perf_counter() - begin
        for handle, _ in started:
            self._engine.release_request(NAME, handle)
        return Decoded(seconds, new_tokens * len(prompts) - known, ids)

    def _start(self, prompt: list[int], new_tokens: int) -> tuple[Any, Any]:
        options = {
            "num_beams": 1, "do_sample": True, "top_k": 1, "top_p": 0.0, "temperature": 1.0,
            "repetition_penalty": 1.0, "min_length": 0, "early_stopping": False,
            "max_length": len(prompt) + new_tokens, "no_repeat_ngram_size": 0, "seed": 0,
            "eos_token_id": 0, "stop_words_ids": [],
        }  # fmt: skip
        ids = torch.tensor([prompt], dtype=torch.int64)
        status, handle, queue = self._engine.start_request(
            NAME, {"input_ids": torch.utils.dlpack.to_dlpack(ids)}, options
        )
        if status != allspark.AsStatus.ALLSPARK_SUCCESS:
            raise RuntimeError(f"start_request returned {status}")
        return handle, queue


def convert(engine: Any, checkpoint: Path, directory: Path) -> None:
    """Write DashInfer's two files; the weights first, so that a whole .dimodel means both."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] not in MODEL_TYPES:
        raise ValueError(f"model type {config['model_type']} is not converted for DashInfer")
    config["size_per_head"] = config["hidden_size"] // config["num_attention_heads"]
    weights = load_file(checkpoint / "model.safetensors")
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"].clone())
    engine.serialize_model_from_torch(
        model_name=NAME,
        model_type=MODEL_TYPES[config["model_type"]],
        torch_model=weights,
        model_config=config,
        save_dir=str(directory),
        multinode_mode=False,
        data_type="float32",
        rotary_base=float(config.get("rope_theta") or 10000.0),
    )


if __name__ == "__main__":
    serve(DashInfer)
