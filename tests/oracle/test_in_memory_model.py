"""A transformers model converted straight from memory, against its own logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert import convert
from dashinfer_lab.hub import SafetensorsCheckpoint, TransformersCheckpoint
from tests.oracle.tiny_llama import CASES, TinyCase, save_tiny_llama
from tests.oracle.witness import relative_error, whole_logits

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
def test_a_model_in_memory_converts_and_agrees_with_itself(
    case: TinyCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = save_tiny_llama(case, tmp_path / "saved")
    ids = np.random.default_rng(5).integers(theirs.config.vocab_size, size=37).tolist()

    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))

    with LLM(theirs, weights="fp32") as ours:
        error = relative_error(ours.logits(ids), whole_logits(theirs, ids))
    assert error.max() <= 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_in_memory_are_those_that_are_saved(dtype: str, tmp_path: Path) -> None:
    import torch

    theirs = save_tiny_llama(TinyCase("any", dtype=dtype), tmp_path).to(getattr(torch, dtype))

    with (
        TransformersCheckpoint(theirs) as in_memory,
        SafetensorsCheckpoint(tmp_path) as saved,
    ):
        assert set(in_memory.names()) == set(saved.names())
        for name in saved.names():
            assert in_memory.info(name) == saved.info(name)
            rows = slice(1, 4) if len(saved.info(name).shape) == 2 else None
            np.testing.assert_array_equal(in_memory.read(name, rows), saved.read(name, rows))


def test_training_changes_the_revision(tmp_path: Path) -> None:
    import torch

    theirs = save_tiny_llama(TinyCase("any"), tmp_path)
    before, again = TransformersCheckpoint(theirs), TransformersCheckpoint(theirs)
    assert before.revision == again.revision

    with torch.no_grad():
        theirs.lm_head.weight[-1, -1] += 1

    assert TransformersCheckpoint(theirs).revision != before.revision


def test_the_tokenizer_goes_along(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Words
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    theirs = save_tiny_llama(TinyCase("any"), tmp_path / "saved")
    words = Words(WordLevel({"<unk>": 0, "</s>": 2, "hello": 5}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>")
    tokenizer.chat_template = "{{ messages[0].content }}"

    artifact = convert(TransformersCheckpoint(theirs, tokenizer), tmp_path / "converted", "a16w8")

    with LLM(artifact.directory) as ours:
        assert ours.tokenizer is not None
        assert ours.tokenizer.encode("hello") == [5]
        assert 2 in ours.tokenizer.eos_ids
        assert ours.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}]) == "hi"


def test_a_model_that_is_not_in_memory_is_refused(tmp_path: Path) -> None:
    from dashinfer_lab.errors import CheckpointError

    theirs = save_tiny_llama(TinyCase("any"), tmp_path).to("meta")

    with pytest.raises(CheckpointError, match="not in memory"):
        TransformersCheckpoint(theirs)
    with pytest.raises(CheckpointError, match="no transformers model"):
        TransformersCheckpoint("model")
