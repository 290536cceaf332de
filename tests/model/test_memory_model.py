"""A transformers model in memory goes straight into `LLM`; torch itself is in tests/oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.config import cache_root
from dashinfer_lab.errors import CheckpointError, ConfigError
from tests.hub.tiny_models import CONFIG, VOCAB, weights, write_safetensors

GREEDY = SamplingParams(temperature=0, max_tokens=6)


@dataclass(frozen=True)
class TorchLike:
    """An array under the names that torch has for what is done with it."""

    values: np.ndarray[Any, Any]
    device: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(type="cpu"))

    @property
    def dtype(self) -> str:
        return f"torch.{self.values.dtype}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def detach(self) -> TorchLike:
        return self

    def to(self, _: str) -> TorchLike:
        return self

    def float(self) -> TorchLike:
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.values

    def __getitem__(self, rows: slice) -> TorchLike:
        return TorchLike(self.values[rows])


@dataclass
class ModelLike:
    """What of `PreTrainedModel` is used."""

    tensors: Mapping[str, np.ndarray[Any, Any]]
    name_or_path: str = "lab/tiny"
    config: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(to_dict=lambda: dict(CONFIG))
    )

    def state_dict(self) -> dict[str, TorchLike]:
        return {name: TorchLike(values) for name, values in self.tensors.items()}


class TokenizerLike:
    """Saves a tokenizer of one word."""

    def save_pretrained(self, folder: str) -> None:
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel

        Tokenizer(WordLevel({"<unk>": 0, "hello": 5}, unk_token="<unk>")).save(
            str(Path(folder) / "tokenizer.json")
        )


@pytest.fixture(autouse=True)
def _own_conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))


def _answer(model: Any, **options: Any) -> list[int]:
    with LLM(model, weights="fp32", threads=1, **options) as llm:
        return llm.generate({"prompt_token_ids": [1, 7, 9]}, GREEDY)[0].outputs[0].token_ids


def test_a_model_in_memory_answers_as_its_files_do(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "files", tensors=weights())

    assert _answer(ModelLike(weights())) == _answer(tmp_path / "files")


def test_it_is_converted_once_until_its_weights_change() -> None:
    def conversions() -> list[str]:
        return sorted(path.name for path in (cache_root() / "conversions").iterdir())

    _answer(ModelLike(weights()))
    (first,) = conversions()
    _answer(ModelLike(weights()))
    assert conversions() == [first]
    assert first.startswith("tiny-fp32-")

    _answer(ModelLike(weights(seed=1)))

    assert len(conversions()) == 2


def test_its_tokenizer_comes_with_it() -> None:
    without = LLM(ModelLike(weights()), threads=1)
    with without, LLM(ModelLike(weights()), tokenizer=TokenizerLike(), threads=1) as llm:
        assert without.tokenizer is None
        assert llm.tokenizer is not None
        assert llm.tokenizer.encode("hello") == [5]
        assert 0 <= llm.generate("hello", GREEDY)[0].outputs[0].token_ids[0] < VOCAB


def test_auto_chooses_its_weights_as_for_a_file() -> None:
    with LLM(ModelLike(weights()), threads=1) as llm:
        assert llm.artifact.metadata["scheme"] == "fp32"
        assert "the model is tiny" in llm.weights_reason


def test_a_tokenizer_beside_a_path_is_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path)

    with pytest.raises(ConfigError, match="tokenizer=.* belongs to a transformers model"):
        LLM(tmp_path, tokenizer=TokenizerLike())


def test_what_saves_no_tokenizer_is_refused() -> None:
    with pytest.raises(CheckpointError, match="int is no transformers tokenizer"):
        LLM(ModelLike(weights()), tokenizer=5)
