"""OpenVINO's runtime on a stateful model that optimum-intel exports with int8 weights."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from serving import Decoded, serve

_WITHOUT_VNNI = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
"""What it takes by itself on a processor with AVX2 alone; it goes by that, not by oneDNN's limit.

Its own kernels, as attention's, keep to what the processor has.
"""


class OpenVino:
    version = openvino.__version__

    def __init__(self, request: dict[str, Any]) -> None:
        name = f"model-{request['fingerprint']}-{request['weights']}"
        directory = Path(request["folder"]) / name
        if not (directory / "openvino_model.bin").is_file():
            export(Path(request["checkpoint"]), directory, request["weights"])
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": request["threads"],
            "PERFORMANCE_HINT": "LATENCY",
        }
        if os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
            settings |= _WITHOUT_VNNI
        path = directory / "openvino_model.xml"
        compiled = openvino.Core().compile_model(path, "CPU", settings)
        self._names = {name for port in compiled.inputs for name in port.get_names()}
        self._request = compiled.create_infer_request()

    def prefill(self, prompt: list[int]) -> float:
        self._request.reset_state()
        begin = time.perf_counter()
        self._step(np.array([prompt]), 0)
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        self._request.reset_state()
        steps = [self._step(np.array(prompts), 0)]
        begin = time.perf_counter()
        for step in range(new_tokens - 1):
            steps.append(self._step(steps[-1], len(prompts[0]) + step))
        seconds = time.perf_counter() - begin
        ids = np.concatenate(steps, 1).tolist()
        return Decoded(seconds, (new_tokens - 1) * len(prompts), ids)

    def _step(self, ids: np.ndarray, position: int) -> np.ndarray:
        """Return the token after each row of `ids`, [B, 1]; the state grows by them."""
        batch, length = ids.shape
        inputs = {
            "input_ids": ids.astype(np.int64),
            "attention_mask": np.ones((batch, position + length), np.int64),
            "position_ids": np.tile(np.arange(position, position + length), (batch, 1)),
            "beam_idx": np.arange(batch, dtype=np.int32),
        }
        self._request.infer({name: it for name, it in inputs.items() if name in self._names})
        logits = self._request.get_tensor("logits").data
        return logits[:, -1:].argmax(-1)


def export(checkpoint: Path, directory: Path, weights: str) -> None:
    """Write OpenVINO's files, whole or not at all."""
    unfinished = directory.with_name(f"{directory.name}.incomplete")
    command = Path(sys.executable).with_name("optimum-cli")
    task = ("--task", "text-generation-with-past", "--weight-format", weights)
    subprocess.run(
        [command, "export", "openvino", "--model", checkpoint, *task, unfinished], check=True
    )
    unfinished.replace(directory)


if __name__ == "__main__":
    serve(OpenVino)
