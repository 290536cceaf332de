"""What a DashInfer user has in a notebook, with the import changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashinfer_lab import LLM, SamplingParams, allspark
from dashinfer_lab.allspark._allspark import AsStatus, GenerateRequestStatus
from dashinfer_lab.allspark.engine import TargetDevice
from dashinfer_lab.allspark.prompt_utils import PromptTemplate
from dashinfer_lab.allspark.quantization import QuantizeConfig
from tests.hub.tiny_models import CONFIG, weights
from tests.model.test_memory_model import ModelLike, TokenizerLike, TorchLike

RUNNING = (
    GenerateRequestStatus.Init,
    GenerateRequestStatus.ContextFinished,
    GenerateRequestStatus.Generating,
)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_second_line_of_versions(
    tiny: Path, tmp_path: Path, in_memory: bool, mode: str
) -> None:
    name = "owner_tiny"
    loader = allspark.HuggingFaceModel(
        str(tiny),
        "owner/tiny",
        user_set_data_type="float32",
        in_memory_serialize=in_memory,
        trust_remote_code=True,
    )
    engine = allspark.Engine()
    if in_memory:
        loader.load_model().read_model_config().serialize_to_memory(
            engine, enable_quant=False, weight_only_quant=True
        ).free_model()
    else:
        loader.load_model().read_model_config().serialize_to_path(
            engine, str(tmp_path), enable_quant=False, weight_only_quant=True, skip_if_exists=False
        ).free_model()
    builder = loader.create_reference_runtime_config_builder(
        name, TargetDevice.CPU, [0], max_batch=8
    )
    builder.max_length(100)
    runtime = builder.build()
    engine.install_model(runtime)
    if in_memory:
        loader.free_memory_serialize_file()
    engine.start_model(name)

    text = PromptTemplate.apply_chatml_template("hello")
    options = loader.create_reference_generation_config_builder(runtime)
    options.update({"top_k": 1})
    options.update({"repetition_penalty": 1.1})
    status, handle, queue = engine.start_request_text(name, loader, text, options)
    assert status == AsStatus.ALLSPARK_SUCCESS
    generated: list[int] = []
    if mode == "sync":
        engine.sync_request(name, handle)
        element = queue.Get()
        assert element is not None
        generated += element.ids_from_generate
    else:
        state = queue.GenerateStatus()
        while state in RUNNING:
            elements = queue.Get()
            if elements is not None:
                generated += elements.ids_from_generate
            state = queue.GenerateStatus()
    assert queue.GenerateStatus() == GenerateRequestStatus.GenerateFinished
    tokenizer = loader.init_tokenizer().get_tokenizer()
    assert isinstance(tokenizer.decode(generated), str)
    engine.release_request(name, handle)
    engine.stop_model(name)
    engine.release_model(name)

    length = 100 - len(tokenizer.encode(text))
    assert generated == _answer_of_llm(tiny, text, length)


def _answer_of_llm(tiny: Path, text: str, max_tokens: int) -> list[int]:
    params = SamplingParams(top_k=1, repetition_penalty=1.1, max_tokens=max_tokens)
    with LLM(tiny, weights="fp32", threads=1) as llm:
        return llm.generate(text, params)[0].outputs[0].token_ids


def _config() -> dict[str, Any]:
    added = {
        "use_dynamic_ntk": False,
        "use_logn_attn": False,
        "rotary_emb_base": 10000,
        "size_per_head": 16,
        "torch_dtype": object(),
        "_name_or_path": "somewhere",
    }
    without = {key: value for key, value in CONFIG.items() if key != "model_type"}
    return {**without, **added}


@pytest.mark.parametrize("quantised", [False, True])
def test_the_first_line_of_versions(tmp_path: Path, quantised: bool) -> None:
    """A state dict and a config's __dict__, and paths put together by hand."""
    name = "tiny_cpu_single_float32"
    engine = allspark.ClientEngine()
    model_config = _config()
    quant = QuantizeConfig(
        activation_type="float32",
        weight_type="uint8",
        extra_option={"SubChannel": True, "GroupSize": 64},
    )
    engine.serialize_model_from_torch(
        model_name=name,
        model_type="LLaMA_v2",
        torch_model={key: TorchLike(value) for key, value in weights().items()},
        multinode_mode=False,
        model_config=model_config,
        data_type="float32",
        do_dynamic_quantize_convert=quantised,
        quant_config=quant if quantised else None,
        use_dynamic_ntk=model_config["use_dynamic_ntk"],
        use_logn_attn=model_config["use_logn_attn"],
        rotary_base=model_config["rotary_emb_base"],
        save_dir=str(tmp_path),
    )
    config = allspark.AsModelConfig(
        model_name=name,
        model_path=os.path.join(tmp_path, name + ".dimodel"),  # noqa: PTH118  # as users spell it
        weights_path=os.path.join(tmp_path, name + ".ditensors"),  # noqa: PTH118  # the same
        engine_max_length=64,
        engine_max_batch=8,
    )
    config.compute_unit = "CPU:0"
    config.cache_mode = allspark.AsCacheMode.AsCacheDefault
    config.prefill_mode = allspark.AsMHAPrefill.AsPrefillDefault
    config.num_threads = 1
    config.matmul_precision = "medium"
    engine.build_model_from_config_struct(config)
    engine.start_model(name)
    options = {"temperature": 0.0, "max_length": 16, "early_stopping": False}
    inputs = {"input_ids": np.array([[1, 7, 9]], np.int64)}
    status, handle, queue = engine.start_request(name, inputs, generate_config=options)
    assert status == AsStatus.ALLSPARK_SUCCESS
    engine.sync_request(name, handle)
    element = queue.Get()
    assert element is not None
    assert len(element.ids_from_generate) == 13
    assert queue.Get() is None
    engine.release_request(name, handle)
    engine.stop_model(name)
    engine.release_model(name)
    assert engine.get_rank_id() == 0


def test_a_transformers_model_goes_in_with_its_tokenizer(tmp_path: Path) -> None:
    with allspark.Engine() as engine:
        engine.serialize_model_from_torch(
            "memory",
            "LLaMA_v3",
            ModelLike(weights()),
            save_dir=str(tmp_path),
            tokenizer=TokenizerLike(),
        )
        builder = allspark.AsModelRuntimeConfigBuilder().model_name("memory")
        builder.model_dir(str(tmp_path), "memory").compute_unit("CPU", [0], 1)
        engine.install_model(builder.max_length(64).max_batch(2).build())
        engine.start_model("memory")
        options = {"temperature": 0.0, "max_length": 6, "early_stopping": False}
        _, _, queue = engine.start_request("memory", "hello", options)
        element = queue.Get()

        assert element is not None
        assert element.ids_from_generate
