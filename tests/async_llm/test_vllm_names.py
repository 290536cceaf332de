"""vLLM's names: its offline quickstart, its options, and the surface they make up."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import dashinfer_lab
from dashinfer_lab import LLM, BeamSearchParams, SamplingParams
from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.vllm_options import LoadArguments
from tests.busy_line import without_busy_line
from tests.surface import surface

SNAPSHOT = Path(__file__).with_name("surface.txt")
NONE_GIVEN = LoadArguments("auto", None, 512, None, None)

QUICKSTART = """
from {package} import LLM, SamplingParams

prompts = ["Hello, my name is", "The capital of France is", "The future of AI is"]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
llm = LLM(model={model!r})
outputs = llm.generate(prompts, sampling_params)
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs[0].text
    print(f"Prompt: {{prompt!r}}, Generated text: {{generated_text!r}}")
llm.close()
"""


def test_the_offline_quickstart_runs_with_the_import_changed(tiny: Path) -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        exec(QUICKSTART.format(package="dashinfer_lab", model=str(tiny)), {})
    lines = said.getvalue().splitlines()

    assert [line.partition(", Generated")[0] for line in lines] == [
        "Prompt: 'Hello, my name is'",
        "Prompt: 'The capital of France is'",
        "Prompt: 'The future of AI is'",
    ]


def test_beams_have_text_and_the_best_comes_first(tiny: Path) -> None:
    with LLM(tiny, weights="fp32", threads=1) as llm:
        params = BeamSearchParams(beam_width=3, max_tokens=6, ignore_eos=True)
        (output,) = llm.beam_search("hello", params)
        assert llm.tokenizer is not None
        texts = [llm.tokenizer.decode(each.tokens) for each in output.sequences]

    assert [each.text for each in output.sequences] == texts
    totals = [each.cum_logprob for each in output.sequences]
    assert len(totals) == 3
    assert totals == sorted(totals, reverse=True)


def test_names_and_signatures_are_those_of_the_snapshot() -> None:
    """A change that is meant: write `surface(dashinfer_lab)` to the file."""
    expected = SNAPSHOT.read_text(encoding="utf-8")

    assert surface(dashinfer_lab) == expected


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({}, NONE_GIVEN),
        ({"dtype": "auto", "tensor_parallel_size": 1, "trust_remote_code": True}, NONE_GIVEN),
        ({"max_model_len": 64}, NONE_GIVEN._replace(context_length=64)),
        ({"max_num_batched_tokens": 32}, NONE_GIVEN._replace(max_batch_tokens=32)),
        ({"kv_cache_memory_bytes": 1 << 20}, NONE_GIVEN._replace(kv_cache_bytes=1 << 20)),
        ({"dtype": "float32"}, NONE_GIVEN._replace(weights="fp32")),
        ({"dtype": "bfloat16"}, NONE_GIVEN._replace(weights="bf16")),
        ({"max_num_seqs": 8}, NONE_GIVEN._replace(engine=EngineOptions(max_running=8))),
        (
            {"enable_prefix_caching": False},
            NONE_GIVEN._replace(engine=EngineOptions(enable_prefix_caching=False)),
        ),
        ({"max_model_len": None, "quantization": None}, NONE_GIVEN),
    ],
    ids=str,
)
def test_options_have_their_meaning(options: dict[str, Any], meant: LoadArguments) -> None:
    assert NONE_GIVEN.with_vllm(options) == meant


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor_parallel_size", 2),
        ("pipeline_parallel_size", 2),
        ("gpu_memory_utilization", 0.9),
        ("swap_space", 4),
        ("cpu_offload_gb", 10),
        ("quantization", "awq"),
        ("enforce_eager", True),
        ("enable_chunked_prefill", False),
        ("enable_lora", True),
        ("load_format", "pt"),
        ("device", "cuda"),
        ("dtype", "float16"),
        ("seed", 0),
        ("revision", "main"),
        ("speculative_config", {"model": "x"}),
        ("block_size", 16),
        ("max_modle_len", 64),
        ("anything", None),
    ],
)
def test_what_cannot_hold_on_a_cpu_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        LLM("nowhere", **{name: value})


def test_all_options_that_cannot_hold_are_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"seed=0 is not .*; gpu_memory_utilization=0\.9 is not "):
        NONE_GIVEN.with_vllm({"seed": 0, "dtype": "auto", "gpu_memory_utilization": 0.9})


@pytest.mark.parametrize(
    "name", ["kv_cache_memory_bytes", "max_model_len", "max_num_batched_tokens", "max_num_seqs"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many"], ids=repr)
def test_counts_are_refused_by_the_name_they_were_given(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.*whole number of at least 1"):
        LLM("nowhere", **{name: value})


def test_a_name_that_is_nearly_right_is_told_which() -> None:
    with pytest.raises(ConfigError, match="did you mean max_model_len"):
        LLM("nowhere", max_modle_len=64)


@pytest.mark.parametrize(
    "options",
    [
        {"context_length": 64, "max_model_len": 32},
        {"weights": "a16w8", "dtype": "float32"},
        {"engine": EngineOptions(max_running=4), "max_num_seqs": 8},
    ],
    ids=str,
)
def test_two_names_that_contradict_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="contradicts"):
        LLM("nowhere", **options)


def test_prompts_that_are_done_are_counted_where_a_person_watches(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    params = SamplingParams(max_tokens=2)
    with LLM(tiny, threads=1) as llm:
        assert len(llm.generate(["a", "b"], params, use_tqdm=True)) == 2
        assert without_busy_line(capsys.readouterr().err) == ""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert len(llm.generate(["a", "b"], params, use_tqdm=True)) == 2
    assert "0/2" in capsys.readouterr().err
