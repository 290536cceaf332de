"""CTranslate2 with int8 weights; it takes tokens as text, so ids go through its vocabulary."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ctranslate2
from serving import Decoded, serve


class CTranslate2:
    version = ctranslate2.__version__

    def __init__(self, request: dict[str, Any]) -> None:
        name = f"model-{request['fingerprint']}-{request['weights']}"
        directory = Path(request["folder"]) / name
        if not directory.is_dir():
            convert(Path(request["checkpoint"]), directory, request["weights"])
        path = directory / "vocabulary.json"
        self._tokens = json.loads(path.read_text(encoding="utf-8"))
        self._generator = ctranslate2.Generator(
            str(directory), "cpu", compute_type=request["weights"],
            inter_threads=1, intra_threads=request["threads"],
        )  # fmt: skip

    def prefill(self, prompt: list[int]) -> float:
        begin = time.perf_counter()
        self._generate([prompt], 1)
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        first_seconds: dict[int, float] = {}

        def stepped(result: Any) -> bool:
            first_seconds.setdefault(result.batch_id, time.perf_counter())
            return False

        outputs = self._generate(prompts, new_tokens, stepped)
        seconds = time.perf_counter() - max(first_seconds.values())
        ids = [list(output.sequences_ids[0]) for output in outputs]
        return Decoded(seconds, (new_tokens - 1) * len(prompts), ids)

    def _generate(self, prompts: list[list[int]], new_tokens: int, callback: Any = None) -> Any:
        return self._generator.generate_batch(
            [[self._tokens[token] for token in prompt] for prompt in prompts],
            max_length=new_tokens, min_length=new_tokens, beam_size=1, sampling_topk=1,
            include_prompt_in_result=False, callback=callback,
        )  # fmt: skip


def convert(checkpoint: Path, directory: Path, weights: str) -> None:
    """Write CTranslate2's files, whole or not at all."""
    unfinished = directory.with_name(f"{directory.name}.incomplete")
    command = Path(sys.executable).with_name("ct2-transformers-converter")
    options = ("--output_dir", unfinished, "--quantization", weights, "--force")
    subprocess.run([command, "--model", checkpoint, *options], check=True)
    unfinished.replace(directory)


if __name__ == "__main__":
    serve(CTranslate2)
