"""llama.cpp through llama-cpp-python's low level: the GGUF requantised, sequences in one batch."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from serving import Decoded, serve

FILE_TYPES = {"Q8_0": 7, "Q4_0": 2}  # llama_ftype


class LlamaCpp:
    version = llama_cpp.__version__

    def __init__(self, request: dict[str, Any]) -> None:
        if request["gguf"] is None:
            raise ValueError("llama.cpp needs a GGUF file")
        path = requantised(Path(request["gguf"]), Path(request["folder"]), request["weights"])
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        self._num_vocabulary = llama_cpp.llama_vocab_n_tokens(
            llama_cpp.llama_model_get_vocab(self._model)
        )
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = request["max_batch"] * request["max_length"]
        settings.n_batch = settings.n_ubatch = 512
        settings.n_seq_max = request["max_batch"]
        settings.n_threads = settings.n_threads_batch = request["threads"]
        settings.no_perf = True
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        if not self._context:
            raise RuntimeError("llama.cpp makes no context")

    def prefill(self, prompt: list[int]) -> float:
        self._clear()
        begin = time.perf_counter()
        self._prefill(prompt, 0)
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        self._clear()
        ids = [[self._prefill(prompt, sequence)] for sequence, prompt in enumerate(prompts)]
        begin = time.perf_counter()
        for step in range(new_tokens - 1):
            at = len(prompts[0]) + step
            drawn = self._run([(one[-1], at, seq, True) for seq, one in enumerate(ids)])
            for one, token in zip(ids, drawn, strict=True):
                one.append(token)
        seconds = time.perf_counter() - begin
        return Decoded(seconds, (new_tokens - 1) * len(prompts), ids)

    def _clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def _prefill(self, prompt: list[int], sequence: int) -> int:
        drawn: list[int] = []
        for start in range(0, len(prompt), 512):
            part = prompt[start : start + 512]
            last = len(prompt) - 1
            rows = [(t, start + i, sequence, start + i == last) for i, t in enumerate(part)]
            drawn = self._run(rows)
        return drawn[0]

    def _run(self, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Compute rows of (token, position, sequence, draws) and draw greedily."""
        batch = llama_cpp.llama_batch_init(len(rows), 0, 1)
        try:
            batch.n_tokens = len(rows)
            for index, (token, position, sequence, draws) in enumerate(rows):
                batch.token[index] = token
                batch.pos[index] = position
                batch.n_seq_id[index] = 1
                batch.seq_id[index][0] = sequence
                batch.logits[index] = draws
            if llama_cpp.llama_decode(self._context, batch):
                raise RuntimeError("llama_decode failed")
        finally:
            llama_cpp.llama_batch_free(batch)
        return [self._best(index) for index, row in enumerate(rows) if row[3]]

    def _best(self, row: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, row)
        pointer = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        return int(np.ctypeslib.as_array(pointer, (self._num_vocabulary,)).argmax())


def requantised(source: Path, folder: Path, weights: str) -> Path:
    """Return `source` in the format `weights`, made once."""
    size = source.stat().st_size
    path = folder / f"{source.stem}-{size}-{weights}.gguf"
    if not path.is_file():
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = FILE_TYPES[weights]
        params.allow_requantize = True
        unfinished = path.with_suffix(".incomplete")
        failed = llama_cpp.llama_model_quantize(
            str(source).encode(), str(unfinished).encode(), ctypes.byref(params)
        )
        if failed:
            raise RuntimeError(f"llama_model_quantize failed with {failed}")
        unfinished.replace(path)
    return path


if __name__ == "__main__":
    serve(LlamaCpp)
