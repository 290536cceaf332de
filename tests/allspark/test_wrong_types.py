"""What is of a wrong type, or would not be used, is a ConfigError that names the key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.allspark import (
    AsModelConfig,
    AsModelRuntimeConfigBuilder,
    ConfigManager,
    Engine,
    HuggingFaceModel,
    QuantizeConfig,
)
from dashinfer_lab.allspark.model_config import load_arguments
from dashinfer_lab.allspark.quantization import scheme_of
from dashinfer_lab.allspark.serialize import directory_for
from dashinfer_lab.errors import ConfigError


@pytest.mark.parametrize(
    ("step", "arguments", "named"),
    [
        ("max_length", ["abc"], "max_length="),
        ("max_length", [2.9], "max_length="),
        ("max_batch", [None], "max_batch="),
        ("max_batch", [True], "max_batch="),
        ("lora_max_rank", ["x"], "lora_max_rank="),
        ("lora_max_num", [[]], "lora_max_num="),
        ("compute_unit", ["CPU", 3], "device_id_array="),
        ("compute_unit", ["CPU", ["0"]], "device_id_array="),
        ("compute_unit", ["CPU", [0], "x"], "compute_thread_in_device="),
        ("compute_unit", [5], "target_device="),
        ("update_from_dict", [{"compute_unit": 5}], "compute_unit"),
        ("update_from_dict", [{"compute_unit": "CPU:0"}], "compute_unit must be a mapping"),
        ("update_from_dict", [{"compute_unit": {"device_ids": "0"}}], "device_ids"),
        ("update_from_dict", [{"kv_cache_mode": []}], "kv_cache_mode="),
        ("update_from_dict", [5], "runtime config must be a mapping"),
        ("from_dict", [None], "runtime config must be a mapping"),
    ],
    ids=str,
)
def test_a_step_names_what_it_cannot_take(step: str, arguments: list[Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        getattr(AsModelRuntimeConfigBuilder(), step)(*arguments)


def test_a_whole_number_may_be_spelled_as_text() -> None:
    built = AsModelRuntimeConfigBuilder().max_length("12").lora_max_num("3").build()

    assert (built.engine_max_length, built.lora_max_num) == (12, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cache_mode", []),
        ("compute_unit", 5),
        ("do_profiling", "no"),
        ("enable_prefix_cache", "false"),
        ("enable_sparsity_matmul", []),
        ("cache_span_num_init", ""),
        ("lora_max_rank", "8"),
        ("lora_max_num", -1),
        ("prefix_cache_ttl", "a"),
    ],
)
def test_a_configuration_is_checked_before_it_is_used(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field}="):
        load_arguments(replace(AsModelConfig(), **{field: value}))


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"device_type": "CUDA"}, "device_type="),
        ({"engine_config": {"engine_max_batch": -3}}, "engine_max_batch="),
        ({"engine_config": {"num_threads": "x"}}, "num_threads="),
        ({"engine_config": {"matmul_precision": "bogus"}}, "matmul_precision="),
        ({"engine_config": {"do_profiling": "false"}}, "do_profiling="),
        (
            {"convert_config": {"do_dynamic_quantize_convert": "false"}},
            "do_dynamic_quantize_convert=",
        ),
        (None, "configuration must be a mapping"),
    ],
    ids=str,
)
def test_a_json_configuration_names_what_cannot_hold(config: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ConfigManager.describe(config)


def test_a_json_file_is_checked_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"device_type": "CUDA"}), encoding="utf-8")
    with pytest.raises(ConfigError, match="device_type="):
        ConfigManager.get_config_from_json(path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", 5, None], ids=repr)
def test_a_model_is_written_under_a_file_s_name(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ConfigError, match="model_name="):
        directory_for(tmp_path, name)


def test_a_model_is_written_into_a_directory() -> None:
    with pytest.raises(ConfigError, match="save_dir=5"):
        directory_for(5, "m")


@pytest.mark.parametrize(
    ("data_type", "options", "named"),
    [
        ([], {}, "data_type="),
        ("float32", None, "quant_config must be a mapping"),
        ("float32", {"SubChannel": "False", "GroupSize": 64}, "SubChannel="),
    ],
    ids=str,
)
def test_a_quantisation_names_what_it_cannot_take(data_type: Any, options: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        scheme_of(data_type, QuantizeConfig(extra_option=options))


@pytest.mark.parametrize("text", [None, 5, [], ["a", "b"], [5]], ids=str)
def test_a_request_takes_one_text(engine: Engine, text: Any) -> None:
    with pytest.raises(ConfigError, match="input_str_or_array="):
        engine.start_request_text("tiny", None, text, None)
    with pytest.raises(ConfigError, match="no model named"):
        engine.start_model([])  # type: ignore[arg-type]


def test_a_loader_needs_a_name_and_a_flag_is_one() -> None:
    with pytest.raises(ConfigError, match="pretrain_model_name="):
        HuggingFaceModel("x", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="do_dynamic_quantize_convert="):
        Engine().serialize_model_from_torch(
            "m",
            "LLaMA_v2",
            {},
            do_dynamic_quantize_convert="false",  # type: ignore[arg-type]
        )
