from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.engine.auto_weights import keep_bandwidth
from dashinfer_lab.errors import ConfigError, DashInferLabError
from dashinfer_lab.progress import LoadProgress
from dashinfer_lab.widgets import ModelLoader
from dashinfer_lab.widgets.bandwidth import read_bandwidth
from dashinfer_lab.widgets.fit import Fit, fit_of
from dashinfer_lab.widgets.fit_html import fit_html
from dashinfer_lab.widgets.loaded import load_in_place_of
from jit_kernels.isa import detect
from tests.model.family_cases import CASES
from tests.model.test_families import converted
from tests.widgets.conftest import eventually


def _fit(weight_bytes: int, kv_bytes: int, available_bytes: int) -> Fit:
    whole = (weight_bytes, weight_bytes, kv_bytes)
    return Fit("a16w8", 1, *whole, "fp32", 8, available_bytes, None)


@pytest.mark.parametrize(
    ("available_bytes", "verdict"),
    [(9 << 30, "fits"), (3 << 30, "tight"), (1 << 30, "too_large")],
)
def test_the_verdict_counts_weights_and_one_whole_conversation(
    available_bytes: int, verdict: str
) -> None:
    assert _fit(2 << 30, 5 << 30, available_bytes).verdict == verdict


def test_what_a_converted_model_needs_is_what_its_file_holds(tiny: LLM) -> None:
    fit = fit_of(tiny.artifact.directory)

    padding = sum(t.num_bytes for name, t in tiny.artifact.tensors.items() if "__pad" in name)
    # A tensor whose scales are too coarse in 16 bits has them in 32.
    assert 0 <= tiny.artifact.num_bytes - padding - fit.weight_bytes <= 0.1 * fit.weight_bytes
    assert fit.kv_bytes == tiny.memory().kv_bytes_per_position * tiny.config.context_length
    assert fit.kv_format == tiny.kv_choice.kv_format == "int8"
    assert fit.bytes_per_token == pytest.approx(tiny.memory().weight_bytes_per_token, rel=0.1)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("qwen2_moe", "a16w4"),
        pytest.param("qwen2_moe", "fp32", marks=pytest.mark.slow),
        pytest.param("mixtral", "a16w8", marks=pytest.mark.slow),
    ],
)
def test_all_experts_must_fit_and_a_token_reads_those_it_meets(
    tmp_path: Path, name: str, weights: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    artifact = converted(case, tmp_path, weights)

    fit = fit_of(tmp_path / "checkpoint", weights)

    padding = sum(t.num_bytes for name, t in artifact.tensors.items() if "__pad" in name)
    assert fit.num_parameters == sum(it.size for it in case.tensors().values())
    assert artifact.num_bytes - padding == pytest.approx(fit.weight_bytes, rel=0.1)
    with LLM(artifact.directory, threads=1) as llm:
        assert fit.bytes_per_token == pytest.approx(llm.memory().weight_bytes_per_token, rel=0.1)
    assert fit.bytes_per_token < 0.8 * fit.weight_bytes


@pytest.mark.model
def test_choosing_smaller_weights_needs_less_and_the_view_says_so(embedded_gguf: Path) -> None:
    loader = ModelLoader(embedded_gguf, weights="fp32", lang="en")
    _ = loader.widget
    whole, shown = loader.fit(), loader.picture.value

    loader.choose(weights="a16w8")

    smaller = loader.fit()
    assert whole is not None
    assert smaller is not None
    assert smaller.weight_bytes < 0.3 * whole.weight_bytes
    assert loader.picture.value != shown
    assert "weights as a16w8" in loader.picture.value
    loader.close()


def test_choosing_smaller_keys_and_values_needs_less_and_loads_them(tiny_directory: Path) -> None:
    loader = ModelLoader(tiny_directory, threads=1, lang="en")
    loader.widget.children[1].children[2].value = "int8"
    fit = loader.fit()
    llm = loader.load()

    assert fit is not None
    assert fit.kv_bytes < 0.4 * loader.choose(kv_cache_dtype="fp32").fit().kv_bytes
    assert "tokens, fp32" in loader.html
    assert llm.kv_choice.kv_format == "int8"
    llm.close()
    loader.close()


def test_keys_and_values_of_no_format_are_said_in_the_view(tiny_directory: Path) -> None:
    assert "fp8" in ModelLoader(tiny_directory, kv_cache_dtype="fp8", lang="en").html


def test_a_model_that_is_not_here_is_not_fetched_to_learn_its_size() -> None:
    loader = ModelLoader("owner/name", lang="en")

    assert loader.fit() is None
    assert "once it is fetched" in loader.html


def test_a_broken_scheme_is_said_in_the_view(embedded_gguf: Path) -> None:
    loader = ModelLoader(embedded_gguf, weights="a16w9", lang="en")

    assert "a16w9" in loader.html
    assert "dl-bad" in loader.html
    assert "is unknown" in loader.html


def test_the_load_button_loads_and_the_view_names_the_model(tiny_directory: Path) -> None:
    loader = ModelLoader(tiny_directory, threads=1, lang="en")
    _ = loader.widget

    loader._button.click()

    assert eventually(lambda: "Loaded" in loader.picture.value and not loader._button.disabled)
    assert loader.llm is not None
    loader.llm.close()
    loader.close()


def test_running_a_load_cell_again_frees_the_former_model_first(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threading.active_count()
    alive_while_loading: list[bool] = []
    held: list[LLM] = []

    def load_cell() -> LLM:
        loader = ModelLoader(tiny_directory, threads=1)
        return loader.load()

    def watched(self: LLM, *arguments: Any, **options: Any) -> None:
        alive_while_loading.extend(llm.engine.alive for llm in held)
        original(self, *arguments, **options)

    original = LLM.__init__
    monkeypatch.setattr(LLM, "__init__", watched)
    held += [load_cell()]
    held += [load_cell()]
    held += [load_cell()]

    assert alive_while_loading == [False, False, False]
    assert [llm.engine.alive for llm in held] == [False, False, True]
    held[-1].close()
    assert threading.active_count() <= threads


def test_models_of_other_names_stay_loaded(tiny_directory: Path) -> None:
    one = load_in_place_of("one", lambda: LLM(tiny_directory, threads=1))
    other = load_in_place_of("other", lambda: LLM(tiny_directory, threads=1))

    assert one.engine.alive
    one.close()
    other.close()


def test_a_load_that_fails_says_why_and_can_be_tried_again(
    tmp_path: Path, tiny_directory: Path
) -> None:
    loader = ModelLoader(tmp_path / "nothing", lang="en", threads=1)
    _ = loader.widget

    with pytest.raises(DashInferLabError):
        loader.load()
    assert eventually(lambda: "Not loaded" in loader.picture.value)

    loader.choose(model=str(tiny_directory))
    loader.load().close()
    loader.close()


def test_an_interrupt_while_loading_is_raised_said_and_leaves_the_loader_usable(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = ModelLoader(tiny_directory, threads=1, lang="en")
    _ = loader.widget

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LLM, "__init__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loader.load()
    assert eventually(lambda: "KeyboardInterrupt" in loader.picture.value)

    loader.load().close()
    loader.close()


def test_progress_is_drawn_where_there_is_a_widget(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = ModelLoader(tiny_directory, threads=1, lang="en")
    _ = loader.widget
    shown: list[str] = []

    def slow(*_: object, progress: LoadProgress, **__: object) -> None:
        assert progress.fetch is not None
        progress.fetch("downloading", 3, 4)
        assert eventually(lambda: "75%" in loader.picture.value)
        shown.append(loader.picture.value)
        raise ConfigError("enough")

    monkeypatch.setattr(LLM, "__init__", slow)
    with pytest.raises(ConfigError, match="enough"):
        loader.load()

    assert "downloading · 75%" in shown[0]
    assert "width:75.00%" in shown[0]
    loader.close()


def test_how_fast_it_may_be_is_said_before_anything_is_loaded(tiny_directory: Path) -> None:
    loader = ModelLoader(tiny_directory, threads=1, lang="en")
    fit = loader.fit()

    assert fit is not None
    assert fit.tokens_per_second is not None
    bandwidth = read_bandwidth(1, fit.available_bytes)
    assert fit.tokens_per_second == pytest.approx(1e9 * (bandwidth or 0) / fit.bytes_per_token)
    assert "tokens/s at most" in loader.html


def test_a_bandwidth_that_was_kept_is_taken_and_little_memory_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path))

    assert read_bandwidth(3, 1 << 20) is None
    keep_bandwidth(detect().name, 3, 12.5)
    assert read_bandwidth(3, 1 << 20) == 12.5


def test_without_a_bandwidth_no_speed_is_foretold() -> None:
    assert "tokens/s" not in fit_html(_fit(1 << 20, 1 << 20, 1 << 40), "model", "en")


def test_a_name_too_long_for_a_file_is_one_of_a_model_that_is_not_here() -> None:
    assert ModelLoader("x" * 5000, lang="en").fit() is None
