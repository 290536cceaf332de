"""`weights="auto"`: the choice follows from memory, bytes a token and bandwidth, and says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.engine.auto_weights import (
    _parameters,
    auto_scheme,
    choice_for,
    choose_weights,
    explain_briefly,
    keep_bandwidth,
    kept_bandwidth,
)
from dashinfer_lab.hub import open_checkpoint
from dashinfer_lab.quantize import Scheme
from tests.hub.tiny_models import write_gguf, write_safetensors
from tests.model.family_cases import CASES
from tests.model.test_families import converted

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


@pytest.mark.parametrize(
    ("num_met", "scheme"), [(None, "a16w8"), (10**7, "fp32"), (2 * 10**7, "a16w8")]
)
def test_only_what_a_token_reads_takes_time(num_met: int | None, scheme: str) -> None:
    """2.9 bytes of 10**7 parameters are read in 0.2 ms at 147 GB/s; all of them must fit."""
    assert choose_weights(10**9, 16 * GB, 148, num_met=num_met).scheme == scheme
    assert choose_weights(10**9, 3 * GB, 148, num_met=num_met).scheme == "a16w8"


def test_all_experts_are_kept_and_those_that_a_token_meets_are_read() -> None:
    choice = choose_weights(8 * 10**9, 9 * GB, 20, num_met=10**9)

    # All in a16w8 are 8.5 GB; a token reads 1062.5 MB of them, 20e9 / 1062.5e6 = 18.8 a second.
    assert choice.scheme == "a16w8"
    assert "with all experts the weights take about 8500 MB" in choice.reason
    assert "a token reads about 1062 MB" in choice.reason
    assert "at most 19 tokens/s" in choice.reason
    assert "wait for the disk" in choose_weights(8 * 10**9, 8 * GB, num_met=10**9).reason
    whole = choose_weights(8 * 10**9, 9 * GB, 20, num_met=10**9, language="zh").reason
    assert "连同全部专家，权重约占 8500 MB" in whole


@pytest.mark.parametrize("stacked", [False, True])
def test_every_expert_of_a_checkpoint_is_counted(tmp_path: Path, stacked: bool) -> None:
    name = "qwen3_moe" + (", spelled as transformers 5 does" if stacked else "")
    case = next(case for case in CASES if case.name == name)
    tensors = case.tensors()
    chosen = 1 / 17 if stacked else 4 / 9
    of_experts = sum(it.size for name, it in tensors.items() if ".experts." in name)
    total = sum(it.size for it in tensors.values())
    met = total - of_experts * (1 - chosen)

    with open_checkpoint(case.write(tmp_path / "model")) as checkpoint:
        reason = choice_for(checkpoint).reason

    assert of_experts > 0.3 * total
    assert f"with all experts the weights take about {4 * total / 1e6:.0f} MB" in reason
    assert f"a token reads about {4 * met / 1e6:.0f} MB" in reason


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
    (tmp_path / "model.safetensors").write_bytes(b"no safetensors file")
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.truncate(100 << 20)  # a hole: it takes no room

    assert auto_scheme(tmp_path) == "a16w8"


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_1", "Q4_K"])
def test_blocks_of_32_are_kept_as_groups(kind: str) -> None:
    choice = choose_weights(1_000_000_000, 16 * GB, 20, stored_as=[kind, "F32"])

    # 4 bytes for 32 codes: 1125 MB a token, and 4 / 1.125 = 3.6 times fewer.
    assert choice.scheme == "a16w8:32"
    assert choice.reason.startswith("a16w8:32: 3.6 times fewer bytes a token than fp32; groups of")
    assert "lose next to nothing" in choice.reason
    assert "reads about 1125 MB" in choice.reason


@pytest.mark.parametrize("stored_as", [[], ["F16"], ["BF16", "Q8_0"], ["Q6_K", "Q4_K"]], ids=str)
def test_other_weights_take_groups_of_64(stored_as: list[str]) -> None:
    assert choose_weights(10**9, 16 * GB, stored_as=stored_as).scheme == "a16w8"


def test_the_reason_is_told_in_chinese_too() -> None:
    english = choose_weights(10**9, 16 * GB, 20, stored_as=["Q4_0"])
    chinese = choose_weights(10**9, 16 * GB, 20, stored_as=["Q4_0"], language="zh")

    assert chinese.scheme == english.scheme
    assert "检查点本身按 32 个一块量化" in chinese.reason
    assert set(re.findall(r"\d+ MB|[\d.]+ GB/s", chinese.reason)) == set(
        re.findall(r"\d+ MB|[\d.]+ GB/s", english.reason)
    )
    assert english.reason.startswith(f"{english.scheme}: {english.why}; ")
    assert chinese.reason.startswith(f"{chinese.scheme}：{chinese.why}；")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scheme"), [(Kind.Q4_1, "a16w8:32"), (Kind.F16, "a16w8")])
def test_a_gguf_file_is_looked_into(
    tmp_path: Path, kind: Kind, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashinfer_lab.engine.auto_weights._TINY_PARAMETERS", 0)
    write_gguf(tmp_path / "tiny.gguf", kind)

    assert auto_scheme(tmp_path / "tiny.gguf") == scheme
    with LLM(tmp_path / "tiny.gguf", threads=1) as llm:
        assert Scheme.parse(llm.artifact.metadata["scheme"]) == Scheme.parse(scheme)
        assert llm.weights_reason.startswith(f"{scheme}: ")
        assert ("blocks" in llm.weights_reason) == (scheme == "a16w8:32")


@pytest.mark.slow
@pytest.mark.model
def test_the_embedded_model_answers_as_in_fp32(embedded_gguf: Path) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answers: list[str] = []
    for weights in ("fp32", "auto"):
        with LLM(embedded_gguf, weights=weights) as llm:
            (output,) = llm.chat(question, SamplingParams(temperature=0, max_tokens=12))
            answers.append(output.outputs[0].text)

    assert answers[1] == answers[0]
    assert "Paris" in answers[0]


def test_a_loaded_model_says_why(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model")

    with LLM(tmp_path / "model") as llm:
        assert llm.artifact.metadata["scheme"] == "fp32"
        assert llm.weights_reason.startswith("fp32: the model is tiny; a token reads about")
        assert explain_briefly(llm.artifact, llm.isa, llm.threads) == "fp32: the model is tiny"
    with LLM(tmp_path / "model", weights="bf16") as llm:
        assert llm.weights_reason == "bf16: it was asked for"
        brief = explain_briefly(llm.artifact, llm.isa, llm.threads, "zh")
        assert brief == "bf16：模型转换时如此"


def test_what_auto_would_read_does_not_depend_on_how_a_model_was_converted(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "qwen2_moe")
    counts = {
        scheme: sum(_parameters(converted(case, tmp_path / scheme, scheme)).values())
        for scheme in ("fp32", "a16w8", "a16w4")
    }
    total = sum(it.size for it in case.tensors().values())

    # Rows of panels are whole words, panels have 16 columns; angles are kept beside.
    assert all(total <= count <= 1.3 * total for count in counts.values())
    assert counts["a16w4"] == pytest.approx(counts["a16w8"], rel=0.05)
