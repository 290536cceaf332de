"""Beams of a tiny model against transformers' `generate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dashinfer_lab import LLM, BeamSearchParams
from dashinfer_lab.beam_search import search

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.oracle

PROMPT = [1, 7, 9]
END = 5


class Ends:
    eos_ids = (END,)

    def decode(self, ids: Sequence[int]) -> str:
        return str(ids)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=30,  # few, so that ends come
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        eos_token_id=END,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def llm(model: Any) -> Iterator[LLM]:
    with LLM(model, weights="fp32", threads=1, progress=False) as llm:
        yield llm


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [0.0, 2.0])
@pytest.mark.parametrize("width", [2, 5])
def test_sequences_are_those_of_transformers(
    model: Any, llm: LLM, early_stopping: Any, length_penalty: float, width: int
) -> None:
    for first in range(6, 10):
        prompt = [first, *PROMPT]
        expected = model.generate(
            torch.tensor([prompt]),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=16,
            do_sample=False,
            early_stopping=early_stopping,
            length_penalty=length_penalty,
        )
        params = BeamSearchParams(
            width, 16, length_penalty=length_penalty, early_stopping=early_stopping
        )
        (output,) = search(llm.engine, [prompt], params, Ends())  # type: ignore[arg-type]

        assert [each.tokens for each in output.sequences] == [
            _unpadded(ids) for ids in expected.tolist()
        ]


def _unpadded(ids: list[int]) -> list[int]:
    """Up to the first end behind the prompt."""
    start = 1 + len(PROMPT)
    return ids[: ids.index(END, start) + 1] if END in ids[start:] else ids
