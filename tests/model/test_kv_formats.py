"""Models whose keys and values are kept as bf16 and int8: the contract, biases, and quality."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.convert import Artifact, convert
from dashinfer_lab.engine.loading import LoadOptions, load_runner
from dashinfer_lab.engine.runner import CompiledRunner
from dashinfer_lab.hub import SafetensorsCheckpoint
from tests.model.family_cases import CASES, token_ids
from tests.model.test_bit_equality import PROMPT, prefill, same_bits, seven_others
from tests.model.test_families import converted
from tests.model.tiny_artifact import tiny_artifact

FORMATS = ("bf16", "int8")
ROOT = Path(__file__).parents[2]
TEXTS = ("LICENSE",)


@contextmanager
def running(
    artifact: Artifact, kv_format: str, threads: int = 2, chaos_seed: int | None = None
) -> Iterator[CompiledRunner]:
    options = LoadOptions(
        threads, max_batch_tokens=200, kv_cache_bytes=2**21, chaos_seed=chaos_seed,
        kv_cache_dtype=kv_format,
    )  # fmt: skip
    runner = load_runner(artifact, options).runner
    try:
        yield runner
    finally:
        runner.close()


def company_changes_nothing(artifact: Artifact, kv_format: str, chunks: tuple[int, ...]) -> bool:
    with running(artifact, kv_format, threads=1) as runner:
        alone = prefill(runner, 50)
    with running(artifact, kv_format, threads=3, chaos_seed=2) as runner:
        runner.cache[:] = 0xFF
        found = [prefill(runner, chunk, seven_others()) for chunk in chunks]
    assert len(alone) == len(PROMPT)
    return all(same_bits(each, alone) for each in found)


@pytest.mark.parametrize("kv_format", FORMATS)
def test_company_chunks_threads_and_old_pages_do_not_change_a_bit(
    tmp_path: Path, kv_format: str
) -> None:
    assert company_changes_nothing(tiny_artifact(tmp_path / "tiny", "a16w8"), kv_format, (7,))


@pytest.mark.slow
@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("scheme", ["fp32", "bf16", "a16w8", "a16w4", "a8w8"])
@pytest.mark.parametrize(
    "name",
    ["qwen2", "qwen2 within a window from layer 1 on", "chatglm", "gemma2", "baichuan 2, 13B"],
)
def test_company_changes_no_bit_of_any_family(
    tmp_path: Path, name: str, scheme: str, kv_format: str
) -> None:
    case = next(case for case in CASES if case.name.startswith(name))

    assert company_changes_nothing(converted(case, tmp_path, scheme), kv_format, (1, 7, 50))


@pytest.mark.parametrize("kv_format", FORMATS)
def test_a_prompt_found_in_the_cache_is_answered_with_the_same_bits(
    tmp_path: Path, kv_format: str
) -> None:
    directory = tiny_artifact(tmp_path / "tiny", "a16w8").directory
    with LLM(directory, threads=2, kv_cache_dtype=kv_format) as llm:
        params = SamplingParams(temperature=0, max_tokens=8, logprobs=3)
        cold, warm = (
            llm.generate([{"prompt_token_ids": PROMPT}], params)[0].outputs[0] for _ in range(2)
        )

    assert warm.token_ids == cold.token_ids
    assert warm.logprobs == cold.logprobs


def test_pages_of_another_format_are_no_prefix(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", "fp32")
    roots: set[bytes] = set()
    for kv_format in ("fp32", *FORMATS):
        with running(artifact, kv_format) as runner:
            roots.add(runner.prefix_key.root(None))

    assert len(roots) == 3


# Measured on random logits: bf16 moves them by 6e-3 of a row's largest at most, int8 by 9e-3.
@pytest.mark.parametrize(("kv_format", "tolerance"), [("bf16", 0.01), ("int8", 0.02)])
def test_logits_move_a_little(tmp_path: Path, kv_format: str, tolerance: float) -> None:
    case = next(case for case in CASES if case.name == "qwen2")
    directory = converted(case, tmp_path, "fp32").directory

    exact, found = (logits_of(directory, each) for each in ("fp32", kv_format))

    assert 0 < relative(found, exact) <= tolerance


def test_a_bias_of_600_on_keys_changes_nothing_that_is_kept(tmp_path: Path) -> None:
    plain, biased = (_with_key_bias(tmp_path / f"{size}", size) for size in (0.0, 600.0))
    pages: list[NDArray[np.uint8]] = []
    for artifact in (plain, biased):
        with running(artifact, "int8") as runner:
            prefill(runner, 50)
            pages.append(runner.cache[0].copy())

    exact, found = (logits_of(biased.directory, each) for each in ("fp32", "int8"))

    assert np.array_equal(*pages)
    assert relative(found, exact) <= 0.02


def _with_key_bias(directory: Path, size: float) -> Artifact:
    """Qwen 2's tiny checkpoint, its first layer's keys biased by `size` in one channel."""
    case = next(case for case in CASES if case.name == "qwen2")
    checkpoint = case.write(directory / "checkpoint")
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["model.layers.0.self_attn.k_proj.bias"][5] += size
    save_file(tensors, checkpoint / "model.safetensors", {"format": "pt"})
    with SafetensorsCheckpoint(checkpoint) as opened:
        return convert(opened, directory / "converted", "fp32")


def logits_of(directory: Path, kv_format: str) -> NDArray[np.float32]:
    with LLM(directory, threads=2, kv_cache_dtype=kv_format) as llm:
        return llm.logits(token_ids())


def relative(found: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    return float((np.abs(found - exact).max(axis=1) / np.abs(exact).max(axis=1)).max())


@dataclass(slots=True)
class Agreement:
    """How two models' next tokens compare, over all positions so far."""

    divergence: float = 0.0
    same: int = 0
    count: int = 0

    def add(self, exact: NDArray[np.float32], found: NDArray[np.float32]) -> None:
        logs = [_log_softmax(each.astype(np.float64)) for each in (exact, found)]
        self.divergence += float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())
        self.same += int((exact.argmax(axis=1) == found.argmax(axis=1)).sum())
        self.count += len(exact)


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


# Measured: int8 diverges by 1.0e-4 with 99.5 % of tokens the same, bf16 by 0.9e-4 with 99.3 %;
# where they are others, fp32's two largest logits are within 0.07 of each other. Keys of 8 bits
# diverged by 1.9e-3 with 97.5 %.
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kv_format", FORMATS)
def test_english_is_continued_as_with_keys_and_values_in_fp32(kv_format: str) -> None:
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in TEXTS)
    agreement = Agreement()
    with (
        LLM("smollm2-135m", threads=2, kv_cache_dtype="fp32") as exact,
        LLM("smollm2-135m", threads=2, kv_cache_dtype=kv_format) as found,
    ):
        assert exact.tokenizer is not None
        ids = exact.tokenizer.encode(text)
        for start in (0, 1024):
            tokens = ids[start : start + 1024]
            for first in range(0, 1024, 256):
                wanted = range(first, first + 256)
                agreement.add(exact.logits(tokens, wanted), found.logits(tokens, wanted))

    assert agreement.count >= 2000
    assert agreement.divergence / agreement.count <= 1e-3
    assert agreement.same / agreement.count >= 0.99


# Why "auto" takes int8 beside them. Measured here: keys and values diverge by 0.8e-4, weights by
# 14e-4 (8 bits) and 3.5e-4 (4 bits, in which the embedded model's file holds them already).
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_keys_and_values_as_int8_cost_less_than_weights_of_8_or_4_bits() -> None:
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in TEXTS)
    divergence: dict[tuple[str, str], float] = {}
    with LLM("smollm2-135m", weights="fp32", kv_cache_dtype="fp32") as exact:
        assert exact.tokenizer is not None
        ids = exact.tokenizer.encode(text)[:512]
        wanted = exact.logits(ids)
    for weights, kept in (("fp32", "int8"), ("a16w8", "fp32"), ("a16w4", "fp32")):
        agreement = Agreement()
        with LLM("smollm2-135m", weights=weights, kv_cache_dtype=kept) as found:
            agreement.add(wanted, found.logits(ids))
        divergence[weights, kept] = agreement.divergence / agreement.count

    assert 2 * divergence.pop(("fp32", "int8")) <= min(divergence.values())
    assert max(divergence.values()) <= 5e-3
