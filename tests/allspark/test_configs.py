"""Runtime and JSON configurations: read whole, refused by name, and what they mean for `LLM`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import allspark
from dashinfer_lab.allspark.model_config import load_arguments
from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.errors import ConfigError, DashInferLabError, UnsupportedModelError
from tests.hub.tiny_models import CONFIG, weights
from tests.model.test_memory_model import TorchLike

JSON: dict[str, Any] = {
    "model_name": "tiny",
    "model_type": "LLaMA_v2",
    "model_path": "~/models/",
    "data_type": "float32",
    "device_type": "CPU",
    "device_ids": [0],
    "multinode_mode": False,
    "convert_config": {"do_dynamic_quantize_convert": True},
    "engine_config": {
        "engine_max_length": 100,
        "engine_max_batch": 8,
        "do_profiling": True,
        "num_threads": 0,
        "matmul_precision": "medium",
    },
    "generation_config": {"temperature": 1.0, "max_length": 64, "eos_token_id": 2, "seed": 1},
    "quantization_config": {
        "activation_type": "float32",
        "weight_type": "uint8",
        "SubChannel": True,
        "GroupSize": 128,
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """`JSON` with one entry changed or added; the path's parts are apart by dots."""
    config = json.loads(json.dumps(JSON))
    *parts, last = path.split(".")
    section = config
    for part in parts:
        section = section[part]
    section[last] = value
    return config


def test_a_json_configuration_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(JSON), encoding="utf-8")
    config = allspark.ConfigManager.get_config_from_json(path)
    said = allspark.ConfigManager.describe(config)

    assert config == JSON
    assert str(said.scheme) == "a16w8:128"
    assert said.generation == JSON["generation_config"]
    assert load_arguments(said.runtime) == {
        "threads": None,
        "context_length": 100,
        "max_batch_tokens": 100,
        "engine": EngineOptions(max_running=8, prefix_cache_ttl=300),
        "kv_cache_dtype": "auto",
        "always_profile": True,
    }


@pytest.mark.parametrize(
    "path",
    [
        "colour",
        "convert_config.fast",
        "engine_config.engine_max_lenght",
        "generation_config.top",
        "quantization_config.GroupSizes",
    ],
)
def test_an_unknown_key_is_refused_by_name(path: str) -> None:
    with pytest.raises(ConfigError, match=path.rpartition(".")[2]):
        allspark.ConfigManager.describe(changed(path, 1))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data_type", "float16"),
        ("device_ids", "0"),
        ("multinode_mode", 1),
        ("engine_config", 3),
        ("quantization_config.weight_type", "int4"),
        ("quantization_config.activation_type", "int8"),
        ("quantization_config.GroupSize", 100),
        ("model_name", None),
    ],
)
def test_a_value_that_cannot_hold_is_refused_by_name(path: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=path.rpartition(".")[2]):
        allspark.ConfigManager.describe(changed(path, value))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("compute_unit", "CUDA:0"),
        ("compute_unit", "CPU:0,1"),
        ("matmul_precision", "low"),
        ("cache_mode", allspark.AsCacheMode.AsCacheQuantU4),
        ("prefill_mode", allspark.AsMHAPrefill.AsPrefillFlashV2),
        ("cache_span_size", 16),
        ("cache_span_num_init", 4),
        ("enable_sparsity_matmul", True),
        ("eviction_strategy", "MaxLength"),
        ("scheduling_strategy", "Balance"),
        ("engine_max_batch", 65),
        ("engine_max_batch", -1),
        ("engine_max_length", "100"),
        ("num_threads", True),
    ],
)
def test_what_no_cpu_can_hold_is_refused_by_name(field: str, value: Any) -> None:
    config = replace(allspark.AsModelConfig(), **{field: value})

    with pytest.raises(ConfigError, match=field):
        load_arguments(config)


def test_a_runtime_config_of_a_dict_is_that_of_the_steps() -> None:
    built = allspark.AsModelRuntimeConfigBuilder().from_dict(
        {
            "model_name": "tiny",
            "compute_unit": {
                "device_type": "cpu",
                "device_ids": [0],
                "compute_thread_in_device": 2,
            },
            "engine_max_length": 100,
            "engine_max_batch": 4,
            "engine_max_prefill_length": 16,
            "kv_cache_mode": "AsCacheDefault",
            "kv_cache_span_size": 32,
            "prefix_cache_ttl": 60,
        }
    )
    steps = allspark.AsModelRuntimeConfigBuilder().model_name("tiny").max_length(100).max_batch("4")
    steps.compute_unit(allspark.TargetDevice.CPU, [0], 2).max_prefill_length(16)
    steps.kv_cache_mode(allspark.AsCacheMode.AsCacheDefault).kv_cache_span_size(32)
    expected = steps.prefix_cache_ttl(60).build()

    assert built.build() == expected
    assert load_arguments(expected)["engine"] == EngineOptions(
        max_running=4, max_chunk_tokens=16, prefix_cache_ttl=60
    )


@pytest.mark.parametrize(
    "given",
    [
        {"engine_max_lenght": 5},
        {"kv_cache_mode": "Int8"},
        {"compute_unit": {"device": "CPU"}},
        {"compute_unit": {"device_type": "TPU"}},
    ],
)
def test_a_runtime_config_is_read_whole(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        allspark.AsModelRuntimeConfigBuilder().update_from_dict(given)


def test_an_attribute_that_is_none_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match="engine_max_lenght"):
        allspark.AsModelConfig().engine_max_lenght = 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "arguments",
    [
        {"model_type": "GPT_v2"},
        {"data_type": "int4"},
        {"rotary_base": 500000.0},
        {"use_dynamic_ntk": True},
        {"save_dir": None},
        {"model_config": None},
        {"torch_model": 5},
    ],
    ids=str,
)
def test_a_model_that_contradicts_what_is_said_of_it_is_refused(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    given: dict[str, Any] = {
        "model_name": "tiny",
        "model_type": "LLaMA_v2",
        "torch_model": {key: TorchLike(value) for key, value in weights().items()},
        "model_config": CONFIG,
        "save_dir": str(tmp_path / "out"),
    }
    with pytest.raises((ConfigError, UnsupportedModelError)):
        allspark.Engine().serialize_model_from_torch(**{**given, **arguments})

    assert not (tmp_path / "out").exists()


def test_weights_of_another_place_are_refused(tiny: Path, tmp_path: Path) -> None:
    config = allspark.AsModelConfig(
        model_name="m",
        model_path=str(tmp_path / "a.dimodel"),
        weights_path=str(tiny.parent / "b" / "a.ditensors"),
    )
    with pytest.raises(ConfigError, match="weights_path"):
        allspark.Engine().build_model_from_config_struct(config)


def test_a_model_that_is_not_there_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    engine = allspark.Engine()
    config = allspark.AsModelConfig(model_name="m", model_path=str(tmp_path / "no.dimodel"))
    with pytest.raises(DashInferLabError, match=str(tmp_path / "no")):
        engine.build_model_from_config_struct(config)

    assert repr(engine).endswith("no models>")


@pytest.mark.parametrize(
    "config",
    [None, 5, {"model_name": 5}, {"model_name": ""}, {"model_path": 5}, {"model_path": ""}],
    ids=str,
)
def test_what_is_no_configuration_is_refused(tiny: Path, config: Any) -> None:
    given = config
    if isinstance(config, dict):
        given = allspark.AsModelConfig(**{"model_name": "m", "model_path": str(tiny), **config})
    engine = allspark.Engine()

    with pytest.raises(ConfigError, match="AsModelConfig|model_name=|model_path="):
        engine.install_model(given)
    assert repr(engine).endswith("no models>")


def test_a_name_is_taken_once(engine: allspark.Engine, tiny: Path) -> None:
    with pytest.raises(ConfigError, match="release_model"):
        engine.install_model(allspark.AsModelConfig(model_name="tiny", model_path=str(tiny)))


def test_profiling_reports_in_sections_by_phase(tiny: Path) -> None:
    with allspark.Engine() as engine:
        config = allspark.AsModelConfig(
            model_name="p", model_path=str(tiny), num_threads=1, do_profiling=True
        )
        engine.install_model(config)
        engine.start_model("p")
        _, handle, _queue = engine.start_request("p", [1, 2, 3], {"max_length": 12})
        engine.sync_request("p", handle)
        report = engine.get_op_profiling_info("p")

    for section in ("*** reshape ***", "*** alloc ***", "*** forward ***"):
        assert report.count(section) == 2  # prefill and decode
    columns = "rank opname count min_ms max_ms ave_ms total_ms percentage"
    assert [line.split() for line in report.splitlines()].count(columns.split()) >= 4


def test_a_quantised_model_chain_and_what_it_refuses(tiny: Path, tmp_path: Path) -> None:
    engine = allspark.Engine()
    loader = allspark.HuggingFaceModel(str(tiny), "tiny")
    loader.init_quantization().serialize(engine, model_output_dir=str(tmp_path))
    runtime = loader.create_reference_runtime_config_builder("tiny").max_batch(2).build()
    engine.install_model(runtime)

    assert "a16w8:64" in engine.get_model_info("tiny")
    assert loader.get_model_context_length() == 128
    engine.close()
    with pytest.raises(ConfigError, match="weight_only_quant"):
        loader.serialize_to_path(engine, str(tmp_path), True, weight_only_quant=False)
    with pytest.raises(ConfigError, match="load_format"):
        loader.load_model(load_format="pt")
    with pytest.raises(ConfigError, match="data_type"):
        allspark.HuggingFaceModel(str(tiny), "half", user_set_data_type="float16").serialize(engine)


def test_keys_and_values_of_8_bits_may_be_asked_for() -> None:
    config = allspark.AsModelConfig(cache_mode=allspark.AsCacheMode.AsCacheQuantI8)

    assert load_arguments(config)["kv_cache_dtype"] == "int8"
