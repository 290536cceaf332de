"""What a caller says of files and what these are must agree: nothing is said in vain."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab.allspark import AsModelConfig, Engine, HuggingFaceModel
from dashinfer_lab.errors import ConfigError
from tests.hub.tiny_models import write_safetensors


def test_weights_that_would_not_be_read_are_refused(tiny: Path) -> None:
    config = AsModelConfig("m", str(tiny), weights_path="/nowhere/else.ditensors")
    engine = Engine()
    with pytest.raises(ConfigError, match="weights_path="):
        engine.install_model(config)

    assert repr(engine).endswith("no models>")


def test_a_load_format_is_that_of_the_files(tiny: Path, tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    gguf, other = HuggingFaceModel(str(tiny), "a"), HuggingFaceModel(str(tmp_path), "b")
    with pytest.raises(ConfigError, match="load_format='safetensors'"):
        gguf.load_model(load_format="safetensors")
    with pytest.raises(ConfigError, match="load_format='gguf'"):
        other.load_model(load_format="gguf")

    for loader, load_format in ((gguf, "gguf"), (gguf, "auto"), (other, "safetensors")):
        assert loader.load_model(load_format=load_format).get_model_context_length() == 128
        loader.free_model()
