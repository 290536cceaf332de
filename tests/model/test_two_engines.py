"""Two engines in one process: each with its own threads and memory, neither in the other's bits."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.errors import EngineClosedError
from tests.model.tiny_artifact import tiny_artifact

SCHEMES = ("a16w8", "a16w4")
PARAMS = SamplingParams(temperature=0.7, seed=5, max_tokens=40, ignore_eos=True)
PROMPTS = [{"prompt_token_ids": list(range(3 + i, 60 + 7 * i))} for i in range(4)]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("two")
    return [tiny_artifact(root / scheme, scheme).directory for scheme in SCHEMES]


def loaded(directory: Path, threads: int) -> LLM:
    return LLM(directory, threads=threads, kv_cache_bytes=2**22)


def answers(llm: LLM) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, PARAMS)]


@pytest.mark.parametrize("threads", [1, 2])
def test_both_at_once_give_what_each_gives_alone(directories: list[Path], threads: int) -> None:
    alone: list[list[list[int]]] = []
    for directory in directories:
        with loaded(directory, 1) as llm:
            alone.append(answers(llm))

    one, other = (loaded(directory, threads) for directory in directories)
    with one, other, ThreadPoolExecutor(4) as callers:
        found = list(callers.map(answers, [one, other, one, other]))

    assert found == [*alone, *alone]
    assert alone[0] != alone[1]


def test_one_goes_on_while_the_other_is_closed_in_the_middle(directories: list[Path]) -> None:
    with loaded(directories[0], 2) as staying:
        expected = answers(staying)
        leaving = loaded(directories[1], 2)
        leaving.engine.subscribe(lambda _: time.sleep(0.01))  # its answer takes 0.4 s
        handle = leaving.submit(PROMPTS[0], PARAMS)
        found: list[list[list[int]]] = []
        caller = threading.Thread(target=lambda: found.append(answers(staying)))
        caller.start()
        leaving.close()
        caller.join(60)

        assert found == [expected]
        with pytest.raises(EngineClosedError):
            list(handle)
        assert answers(staying) == expected
