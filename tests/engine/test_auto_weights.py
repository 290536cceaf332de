"""`weights="auto"`: the choice follows from memory, bytes a token and bandwidth, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.engine.auto_weights import (
    auto_scheme,
    choose_weights,
    keep_bandwidth,
    kept_bandwidth,
)
from tests.hub.tiny_models import write_safetensors

GB = 10**9


@pytest.fixture(autouse=True)
def _no_bandwidth_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))


def test_a_large_model_is_quantised_and_its_speed_foretold() -> None:
    choice = choose_weights(1_000_000_000, 16 * GB, bandwidth_gbs=20)

    # A byte a weight, and 4 bytes for 64 of them: 1062.5 MB a token, 20e9 / 1062.5e6 = 18.8 a
    # second; fp32 reads 4 / 1.0625 = 3.8 times as much.
    assert choice.scheme == "a16w8"
    assert "3.8 times fewer bytes a token than fp32" in choice.reason
    assert "reads about 1062 MB of weights, 16000 MB of memory are free" in choice.reason
    assert "at 20.0 GB/s that is at most 19 tokens/s" in choice.reason


def test_without_a_measured_bandwidth_the_reason_says_so() -> None:
    choice = choose_weights(1_000_000_000, 16 * GB)

    assert choice.scheme == "a16w8"
    assert "no bandwidth was measured here yet" in choice.reason


@pytest.mark.parametrize(("num_parameters", "scheme"), [(4_000_000, "fp32"), (4_000_001, "a16w8")])
def test_a_tiny_model_stays_exact(num_parameters: int, scheme: str) -> None:
    assert choose_weights(num_parameters, 16 * GB).scheme == scheme


@pytest.mark.parametrize(("bandwidth_gbs", "scheme"), [(146, "a16w8"), (148, "fp32")])
def test_a_model_stays_exact_where_nobody_could_tell_the_time(
    bandwidth_gbs: float, scheme: str
) -> None:
    # a16w8 saves 10e6 * (4 - 1.0625) = 29.375 MB a token: 0.2 ms at 146.9 GB/s.
    assert choose_weights(10_000_000, 16 * GB, bandwidth_gbs).scheme == scheme


def test_what_does_not_fit_is_quantised_and_called_slow() -> None:
    assert choose_weights(4_000_000, 15_999_999).scheme == "a16w8"
    assert "decoding will wait for the disk" in choose_weights(10**9, GB).reason


def test_a_bandwidth_is_kept_for_its_instruction_set_and_threads() -> None:
    keep_bandwidth("avx2", 2, 18.25)
    keep_bandwidth("avx2", 4, 30)

    assert (kept_bandwidth("avx2", 2), kept_bandwidth("avx2", 4)) == (18.25, 30.0)
    assert kept_bandwidth("avx512", 2) is None


@pytest.mark.parametrize("content", ["", "[]", '{"avx2, 2 threads": "fast"}'])
def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "roof.json").write_text(content, encoding="utf-8")

    assert kept_bandwidth("avx2", 2) is None
    keep_bandwidth("avx2", 2, 7)
    assert kept_bandwidth("avx2", 2) == 7.0


def test_a_large_checkpoint_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"no GGUF file")
    with (tmp_path / "model.gguf").open("r+b") as file:
        file.truncate(100 << 20)  # a hole: it takes no room

    assert auto_scheme(tmp_path / "model.gguf") == "a16w8"


def test_a_loaded_model_says_why(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model")

    with LLM(tmp_path / "model") as llm:
        assert llm.artifact.metadata["scheme"] == "fp32"
        assert llm.weights_reason.startswith("fp32: the model is tiny; a token reads about")
    with LLM(tmp_path / "model", weights="bf16") as llm:
        assert llm.weights_reason == "bf16: it was asked for"
