"""Contexts of 32768 positions: the same bits in tiles and splits, and no scratch that grows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import Chunk
from dashinfer_lab.engine.loading import LoadOptions, load_runner
from dashinfer_lab.engine.runner import CompiledRunner
from jit_kernels.isa import AVX2
from jit_kernels.kv_layout import KV_FORMATS, PAGE_SIZE, block_bytes
from tests.kernels.attention_cases import Options, attend, random_case, split_items, tiled_items
from tests.kernels.machine_code import same_bits
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

LENGTH = 32768
HEAD_DIM = 16
PAGES = tuple(int(page) for page in np.random.default_rng(1).permutation(LENGTH // 32))
TOKENS = np.random.default_rng(2).integers(0, 331, 64).tolist()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    directory = tmp_path_factory.mktemp("long") / "tiny"
    return tiny_artifact(directory, "fp32", tiny_llama(context_length=LENGTH, head_dim=HEAD_DIM))


@contextmanager
def long_runner(artifact: Artifact, threads: int, kv_format: str) -> Iterator[CompiledRunner]:
    """A runner whose pages hold keys and values that nobody had to compute."""
    options = LoadOptions(threads, max_batch_tokens=512, kv_cache_dtype=kv_format)
    runner = load_runner(artifact, options).runner
    random = np.random.default_rng(3)
    if kv_format == "fp32":
        pages = runner.cache.view(np.float32)
        pages[:] = random.standard_normal(pages.shape, np.float32)
    elif kv_format == "bf16":  # numbers below 2
        pages = runner.cache.view(np.uint16)
        pages[:] = random.integers(0x3E00, 0x4000, pages.shape, np.uint16)
    else:  # any codes, by scales that leave them below 2
        heads = runner.cache.reshape(*runner.cache.shape[:2], -1, block_bytes("int8", HEAD_DIM))
        heads[:] = random.integers(0, 256, heads.shape, np.uint8)
        scales = np.repeat(np.array([2**-10, 2**-6], np.float32), PAGE_SIZE)
        heads[..., -scales.nbytes :] = scales.view(np.uint8)
    try:
        yield runner
    finally:
        runner.close()


def last_logits(runner: CompiledRunner, chunk: int) -> NDArray[np.float32]:
    """Logits of the last 64 positions, `chunk` of them a step."""
    found: list[NDArray[np.float32]] = []
    for first in range(0, len(TOKENS), chunk):
        ids, start = TOKENS[first : first + chunk], LENGTH - len(TOKENS) + first
        (result,) = runner.step([Chunk(0, ids, start, PAGES, "all", None)])
        assert result.logits is not None
        found.append(result.logits)
    return np.concatenate(found)


@pytest.mark.slow
@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_a_long_request_has_the_same_bits_in_tiles_and_split_over_workers(
    artifact: Artifact, kv_format: str
) -> None:
    with long_runner(artifact, 1, kv_format) as runner:
        prefilled = last_logits(runner, len(TOKENS))

    with long_runner(artifact, 3, kv_format) as runner:
        decoded = last_logits(runner, 1)
        num_items = int(runner.inputs.num_items[0])

    assert np.isfinite(prefilled).all()
    assert np.array_equal(decoded.view(np.uint32), prefilled.view(np.uint32))
    assert num_items == LENGTH // 128  # one row, and a unit of work for each segment and kv head


@pytest.mark.slow
def test_scratch_does_not_grow_with_the_square_of_the_length(artifact: Artifact) -> None:
    sizes: list[int] = []
    for length in (1024, LENGTH):
        options = LoadOptions(2, context_length=length, max_batch_tokens=512)
        runner = load_runner(artifact, options).runner
        sizes.append(runner.memory_use.arena_bytes + runner.memory_use.step_bytes)
        runner.close()

    assert sizes[1] - sizes[0] < 32e6


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [Options(), Options(kv_format="int8"), Options(window=5000)],
    ids=["fp32", "int8", "window"],
)
def test_a_row_at_32k_has_the_reference_bits(options: Options) -> None:
    case = random_case(64, 2, [LENGTH], [1], num_kv_heads=1, options=options)
    expected = case.expected()

    same_bits(attend(case, AVX2, tiled_items(case)), expected)
    same_bits(attend(case, AVX2, *split_items(case)), expected)
