"""How many keys a window shows: every later row is looked at as one earlier token is exchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert import convert
from tests.convert.memory_checkpoint import MemoryCheckpoint
from tests.model.family_cases import CASES, token_ids

CONTEXT = 170


SLOW = pytest.mark.slow
QWEN2 = "qwen2 within a window from layer 1 on"


@pytest.mark.parametrize(
    ("name", "changes", "window"),
    [
        ("mistral within a window", {}, 4),
        ("mistral within a window", {}, 130),
        pytest.param("gemma2", {}, 4, marks=SLOW),
        pytest.param(QWEN2, {"max_window_layers": 0}, 4, marks=SLOW),
        pytest.param(QWEN2, {"max_window_layers": 0}, 130, marks=SLOW),
    ],
    ids=str,
)
def test_a_window_of_w_shows_w_keys_the_querys_own_among_them(
    tmp_path: Path, name: str, changes: dict[str, object], window: int
) -> None:
    case = next(case for case in CASES if case.name == name)
    config = {**case.whole_config(), "num_hidden_layers": 1, "sliding_window": window, **changes}
    tensors = {key: it for key, it in case.tensors().items() if ".layers.1." not in key}
    artifact = convert(MemoryCheckpoint(config, tensors), tmp_path / "one_layer", "fp32")
    (artifact.directory / "tokenizer.json").unlink()
    ids = (token_ids() * 2)[:CONTEXT]

    with LLM(artifact.directory, threads=2) as llm:
        before = llm.logits(ids)
        for place in (0, 7, 33):
            after = llm.logits([*ids[:place], (ids[place] + 1) % 300, *ids[place + 1 :]])
            changed = np.flatnonzero((after != before).any(axis=1))

            assert changed.tolist() == list(range(place, min(place + window, CONTEXT)))
