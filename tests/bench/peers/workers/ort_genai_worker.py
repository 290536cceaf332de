"""ONNX Runtime GenAI on a model that its own builder makes, with int4 weights."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
from serving import Decoded, serve


class OrtGenAi:
    version = og.__version__

    def __init__(self, request: dict[str, Any]) -> None:
        name = f"model-{request['fingerprint']}-{request['weights']}"
        directory = Path(request["folder"]) / name
        if not directory.is_dir():
            build(Path(request["checkpoint"]), directory, request["weights"])
        set_threads(directory / "genai_config.json", request["threads"])
        self._model = og.Model(str(directory))
        self._max_length = request["max_length"]

    def prefill(self, prompt: list[int]) -> float:
        generator = self._generator(1)
        begin = time.perf_counter()
        generator.append_tokens(np.array([prompt], np.int32))
        generator.generate_next_token()
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        generator = self._generator(len(prompts))
        generator.append_tokens(np.array(prompts, np.int32))
        generator.generate_next_token()
        begin = time.perf_counter()
        for _ in range(new_tokens - 1):
            generator.generate_next_token()
        seconds = time.perf_counter() - begin
        rows = [generator.get_sequence(row) for row in range(len(prompts))]
        ids = [[int(token) for token in row[len(prompts[0]) :]] for row in rows]
        return Decoded(seconds, (new_tokens - 1) * len(prompts), ids)

    def _generator(self, batch: int) -> Any:
        params = og.GeneratorParams(self._model)
        length = self._max_length
        params.set_search_options(
            do_sample=False, batch_size=batch, max_length=length, min_length=length
        )
        return og.Generator(self._model, params)


def build(checkpoint: Path, directory: Path, weights: str) -> None:
    """Write the model's files, whole or not at all."""
    unfinished = directory.with_name(f"{directory.name}.incomplete")
    module = ("-m", "onnxruntime_genai.models.builder")
    files = ("-i", checkpoint, "-o", unfinished, "-c", unfinished.with_suffix(".cache"))
    subprocess.run([sys.executable, *module, *files, "-p", weights, "-e", "cpu"], check=True)
    unfinished.replace(directory)


def set_threads(path: Path, threads: int) -> None:
    """Name the number of threads in the model's own configuration."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")


if __name__ == "__main__":
    serve(OrtGenAi)
