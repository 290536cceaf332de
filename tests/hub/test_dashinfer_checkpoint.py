from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.cli import main
from dashinfer_lab.convert import convert, is_artifact
from dashinfer_lab.errors import CheckpointError, DashInferLabError, UnsupportedModelError
from dashinfer_lab.hub import dashinfer_checkpoint, model_config, open_checkpoint
from dashinfer_lab.hub.dashinfer_checkpoint import DashInferCheckpoint
from dashinfer_lab.hub.dashinfer_names import NAMES
from tests.hub.dashinfer_models import CASES, PROMPT, Case, config_of, weights_of

FILES = Path(__file__).with_name("dashinfer_files")
FLOAT_CASES = [name for name, case in CASES.items() if case.weight_type is None]
OUTER = {
    f"{name}.weight"
    for names in NAMES.values()
    for name in (names.embedding, names.norm, names.head)
}
QUANTISED_CASES = [name for name, case in CASES.items() if case.weight_type is not None]


def as_serialised(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The weights that DashInfer was given, float32 of the precision it stored."""
    import ml_dtypes

    case = CASES[name]
    kind = ml_dtypes.bfloat16 if case.data_type == "bfloat16" else np.dtype(case.data_type)
    return {key: it.astype(kind).astype(np.float32) for key, it in weights_of(case).items()}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """DashInfer's Llama, to be changed."""
    return Path(shutil.copytree(FILES / "llama", tmp_path / "copied"))


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_every_weight_is_the_one_that_was_serialised(name: str) -> None:
    expected = as_serialised(name)
    with open_checkpoint(FILES / name) as checkpoint:
        found = {key: checkpoint.read(key).astype(np.float32) for key in checkpoint.names()}
        infos = {key: checkpoint.info(key).shape for key in checkpoint.names()}

    if CASES[name].tied:  # DashInfer stores the head once more
        assert np.array_equal(found.pop("lm_head.weight"), found["model.embed_tokens.weight"])
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert infos[key] == values.shape
        assert np.array_equal(found[key], values), key


@pytest.mark.parametrize("name", QUANTISED_CASES)
def test_a_quantised_weight_is_within_half_a_step_of_the_one_that_was_serialised(name: str) -> None:
    group, expected = CASES[name].group_size, as_serialised(name)
    with open_checkpoint(FILES / name) as checkpoint:
        for key, values in expected.items():
            found, dtype = checkpoint.read(key), checkpoint.info(key).dtype
            assert (found.dtype, dtype) == (np.float32, "float32")
            if values.ndim == 1 or key in OUTER:
                assert np.array_equal(found, values)
                continue
            for start in range(0, values.shape[1], group or values.shape[1]):
                columns = slice(start, start + (group or values.shape[1]))
                part = values[:, columns]
                step = (part.max(1) - part.min(1)) / 255
                # Rounding is off by half a step; float32 zero points up to 255 by 2**-16 of one.
                off = np.abs(found[:, columns] - part).max(1)
                assert (off <= step * (0.5 + 2**-12)).all(), key
                assert (off > step * 0.1).any()


@pytest.mark.parametrize("name", CASES)
def test_its_configuration_is_the_originals(name: str) -> None:
    with open_checkpoint(FILES / name) as checkpoint:
        found = model_config(checkpoint.config)

    assert found == model_config(config_of(CASES[name]))


def safetensors_of(name: str, directory: Path) -> Path:
    """The checkpoint that DashInfer was given, in Hugging Face's layout."""
    directory.mkdir()
    save_file(as_serialised(name), directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config_of(CASES[name])), encoding="utf-8")
    return directory


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_logits_are_those_of_the_checkpoint_it_came_from(name: str, tmp_path: Path) -> None:
    logits = []
    for source in (FILES / name, safetensors_of(name, tmp_path / "original")):
        output = tmp_path / f"{source.name} converted"
        with open_checkpoint(source) as checkpoint:
            convert(checkpoint, output, "fp32")
        with LLM(output, threads=1, progress=False) as llm:
            logits.append(llm.logits([3, 1, 4, 15, 9, 26, 5, 35, 8, 40]))

    assert np.array_equal(*logits)
    assert np.ptp(logits[0]) > 0


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.drawn])
def test_tokens_are_those_that_dashinfers_own_engine_draws(name: str) -> None:
    expected = CASES[name].drawn
    params = SamplingParams(temperature=0, max_tokens=len(expected), ignore_eos=True)
    with LLM(FILES / name, weights="fp32", threads=1, progress=False) as llm:
        (output,) = llm.generate([{"prompt_token_ids": list(PROMPT)}], params)

    assert tuple(output.outputs[0].token_ids) == expected
    assert len(set(expected)) > 2


@pytest.mark.parametrize("name", ["llama", "llama_a16w8"])
@pytest.mark.parametrize("band_bytes", [1, 1000, 1 << 20])
def test_rows_are_those_of_the_whole_whatever_is_read_at_a_time(
    name: str, band_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_checkpoint(FILES / name) as checkpoint:
        whole = {key: checkpoint.read(key) for key in checkpoint.names()}
    monkeypatch.setattr(dashinfer_checkpoint, "_BAND_BYTES", band_bytes)
    with open_checkpoint(FILES / name) as checkpoint:
        for key, values in whole.items():
            for rows in (slice(0, 1), slice(3, 9), slice(7, 1 << 20), slice(2, 2)):
                assert np.array_equal(checkpoint.read(key, rows), values[rows]), key


def test_the_config_beside_it_counts_for_more(copied: Path) -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    beside = {**config_of(CASES["llama"]), "rope_theta": 7.0, "rope_scaling": scaling}
    (copied / "config.json").write_text(json.dumps(beside), encoding="utf-8")
    with open_checkpoint(copied) as checkpoint:
        rope = model_config(checkpoint.config).rope

    assert (rope.theta, rope.scaling, rope.factor) == (7.0, "linear", 4.0)


def test_dashinfers_own_settings_are_no_config(copied: Path) -> None:
    (copied / "config.json").write_text('{"model_type": "LLaMA_v3"}', encoding="utf-8")
    with open_checkpoint(copied) as checkpoint:
        assert model_config(checkpoint.config) == model_config(config_of(CASES["llama"]))


def test_the_generation_that_a_file_names_reads_the_ratio_of_the_config_beside_it(
    tmp_path: Path,
) -> None:
    copied = Path(shutil.copytree(FILES / "chatglm2", tmp_path / "copied"))
    beside = {**config_of(CASES["chatglm2"]), "model_type": "chatglm", "seq_length": 999}
    (copied / "config.json").write_text(json.dumps(beside), encoding="utf-8")

    with open_checkpoint(copied) as checkpoint:
        found = model_config(checkpoint.config)

    assert (found.rope.scaling, found.rope.factor, found.context_length) == ("linear", 4.0, 999)


def test_the_keys_of_qwens_first_release_are_a_config(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(FILES / "qwen", tmp_path / "copied"))
    beside = config_of(CASES["qwen"])
    for new, old in (
        ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"),
        ("max_position_embeddings", "n_positions"), ("hidden_size", "n_embd"),
    ):  # fmt: skip
        beside[old] = beside.pop(new)
    (copied / "config.json").write_text(json.dumps({**beside, "n_positions": 777}), "utf-8")

    with open_checkpoint(copied) as checkpoint:
        assert model_config(checkpoint.config).context_length == 777


def test_rotary_positions_of_another_generation_are_refused(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(FILES / "chatglm4", tmp_path / "copied"))

    with pytest.raises(
        UnsupportedModelError, match="invfreq_type 2 .* not supported for ChatGLM_v2"
    ):
        open_checkpoint(changed(copied, b"ChatGLM_v4", b"ChatGLM_v2"))


def test_the_config_of_another_model_is_refused(copied: Path) -> None:
    beside = {**config_of(CASES["llama"]), "num_attention_heads": 4}
    (copied / "config.json").write_text(json.dumps(beside), encoding="utf-8")

    with pytest.raises(CheckpointError, match="num_attention_heads is 4, 2 in DashInfer's"):
        open_checkpoint(copied)


def changed(directory: Path, old: bytes, new: bytes, suffix: str = ".dimodel") -> Path:
    """Replace bytes of one of the two files, as many of them as there were."""
    path = directory / f"tiny{suffix}"
    data = path.read_bytes()
    assert old in data
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))
    return directory


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"LLaMA_v3", b"LLaMA_v9", "model type 'LLaMA_v9' is not read; read are LLaMA_v2"),
        (b"LLaMA_v3", b"Qwen_v30", "'Qwen_v30' is not read"),
        (b"LLaMA_v3", b"Baichuan", "'Baichuan' is not read; .*original checkpoint"),
        (b"GemmA16W8", b"GemmA16W4", "GemmA16W4 .* is not read: weights are read in fp32"),
        (b"use_logn_attn\x12\x05False", b"use_logn_attn\x12\x05Truly", "use_logn_attn"),
    ],
)
def test_what_is_not_read_is_refused_by_name(
    old: bytes, new: bytes, message: str, tmp_path: Path
) -> None:
    source = "llama_a16w8" if b"A16W8" in old else "llama"
    copied = Path(shutil.copytree(FILES / source, tmp_path / "copied"))

    with pytest.raises(UnsupportedModelError, match=message):
        open_checkpoint(changed(copied, old, new))


def test_a_llama_3_whose_rotary_base_was_not_written_needs_its_config(copied: Path) -> None:
    changed(copied, b"500000.0", b"10000.00")
    with pytest.raises(CheckpointError, match="does not tell the base.*Put the original config"):
        open_checkpoint(copied)

    (copied / "config.json").write_text(json.dumps(config_of(CASES["llama"])), encoding="utf-8")
    with open_checkpoint(copied) as checkpoint:
        assert model_config(checkpoint.config).rope.theta == 500000.0


def test_weights_of_another_serialisation_are_refused(copied: Path) -> None:
    shutil.copy(FILES / "qwen2" / "tiny.ditensors", copied)

    with pytest.raises(CheckpointError, match="not what its .dimodel was written with"):
        open_checkpoint(copied)


def test_weights_that_are_cut_off_are_refused(copied: Path) -> None:
    path = copied / "tiny.ditensors"
    path.write_bytes(path.read_bytes()[:9000])

    with pytest.raises(CheckpointError, match="cut off within"):
        open_checkpoint(copied)


def test_a_directory_of_one_file_or_of_several_models_is_refused(copied: Path) -> None:
    shutil.copy(copied / "tiny.dimodel", copied / "other.dimodel")
    with pytest.raises(CheckpointError, match=r"several .dimodel files: other.dimodel, tiny"):
        open_checkpoint(copied)

    (copied / "tiny.dimodel").unlink()
    with pytest.raises(CheckpointError, match=r"holds other.dimodel, but no other.ditensors"):
        open_checkpoint(copied)


def test_files_with_our_names_are_a_checkpoint_still(copied: Path, tmp_path: Path) -> None:
    for suffix in (".dimodel", ".ditensors"):
        (copied / f"tiny{suffix}").rename(copied / f"model{suffix}")

    assert not is_artifact(copied)
    output = tmp_path / "converted"
    assert main(["convert", str(copied), str(output), "--weights", "a16w8"]) == 0
    assert is_artifact(output)


def test_a_closed_checkpoint_says_so() -> None:
    checkpoint = open_checkpoint(FILES / "llama")
    checkpoint.close()
    checkpoint.close()

    with pytest.raises(CheckpointError, match="was closed"):
        checkpoint.read("model.norm.weight")


@pytest.mark.parametrize("suffix", [".dimodel", ".ditensors"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_files_end_in_an_error_of_ours_or_in_weights(
    suffix: str, data: st.DataObject, tmp_path: Path
) -> None:
    for part in (".dimodel", ".ditensors"):
        shutil.copy(FILES / "llama" / f"tiny{part}", tmp_path)
    path = tmp_path / f"tiny{suffix}"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(content), 4000) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=6))
    path.write_bytes(content)

    try:
        with DashInferCheckpoint(
            tmp_path, (tmp_path / "tiny.dimodel", tmp_path / "tiny.ditensors")
        ) as it:
            model_config(it.config)
            for name in it.names():
                it.read(name)
    except DashInferLabError:
        pass


def test_a_case_is_what_its_files_are() -> None:
    assert {path.name for path in FILES.iterdir()} == set(CASES)
    assert all(isinstance(case, Case) for case in CASES.values())
