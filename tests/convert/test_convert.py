"""Conversion: streamed, whole or not at all, and every refusal names the tensor or the way out."""

from __future__ import annotations

import errno
import os
import shutil
from collections import namedtuple
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dashinfer_lab.convert import Artifact, ConversionProgress, converted
from dashinfer_lab.convert.converter import convert
from dashinfer_lab.errors import CheckpointError, ConversionError
from dashinfer_lab.quantize import Scheme, panel_shape
from jit_kernels import panels
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config
from tests.hub.tiny_models import write_safetensors

DOWN = "model.layers.1.mlp.down_proj.weight"


def _left_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_directory_is_self_contained_and_nothing_else_is_left(tmp_path: Path) -> None:
    convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "a16w8")

    assert _left_in(tmp_path) == ["model"]
    assert _left_in(tmp_path / "model") == [
        "LICENCE_NOTE.txt",
        "model.dimodel",
        "model.ditensors",
        "tokenizer.json",
    ]


def test_tensors_lie_by_region_in_the_order_of_the_graph(tmp_path: Path) -> None:
    artifact = convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "a16w8")
    kinds = [
        name.rpartition(".")[2] if name.endswith((".scale", ".minimum")) else dtype
        for name, dtype in ((n, t.dtype) for n, t in artifact.tensors.items())
    ]

    assert kinds == ["U8"] * 15 + ["scale"] * 15 + ["minimum"] * 15 + ["F32"] * 7
    for part in ("", ".scale", ".minimum"):
        q, k, v = (
            artifact.tensors[f"model.layers.1.self_attn.{name}_proj.weight{part}"] for name in "qkv"
        )
        assert (q.offset + q.num_bytes, k.offset + k.num_bytes) == (k.offset, v.offset)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("scheme", ["fp32", "bf16"])
def test_half_precision_checkpoints_are_widened_exactly(
    tmp_path: Path, dtype: Any, scheme: str
) -> None:
    checkpoint = tiny_checkpoint(tiny_config(), dtype)
    artifact = convert(checkpoint, tmp_path / "model", scheme)

    values = checkpoint.tensors[DOWN].astype(np.float32)
    stored = artifact.tensor(DOWN)
    if scheme == "fp32":
        np.testing.assert_array_equal(panels.unpack_f32(stored, 60), values)
    else:
        bits = panels.unpack_bf16(stored, 60, 150)
        np.testing.assert_array_equal(bits, values.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_a_tensor_too_fine_for_float16_alone_gets_float32_scales(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    # The last rows, so that codes written before must be taken back.
    checkpoint.tensors[DOWN][-1] = np.linspace(1.00, 1.01, 150)
    artifact = convert(checkpoint, tmp_path / "model", "a16w8")

    coarse = [name for name, tensor in artifact.tensors.items() if tensor.dtype == "F16"]
    assert artifact.tensors[f"{DOWN}.scale"].dtype == "F32"
    assert artifact.tensors[f"{DOWN}.minimum"].dtype == "F32"
    assert len(coarse) == 2 * 14
    # Codes of the last row rise from 0 to 255 within each group of 64.
    codes = panels.unpack_u8(artifact.tensor(DOWN), 60, 150)[-1]
    assert codes[[0, 63, 64, 127, 128, 149]].tolist() == [0, 255] * 3


def test_large_tensors_are_read_by_blocks_of_rows(tmp_path: Path) -> None:
    config = tiny_config(vocab_size=40_000)
    checkpoint = tiny_checkpoint(config)
    artifact = convert(checkpoint, tmp_path / "model", "fp32")

    name = "model.embed_tokens.weight"
    pieces = [num_bytes for read, num_bytes in checkpoint.reads if read == name]
    assert len(pieces) > 1
    assert max(pieces) <= 4 << 20
    assert sum(pieces) == checkpoint.tensors[name].nbytes
    unpacked = panels.unpack_f32(artifact.tensor(name), 40_000)
    np.testing.assert_array_equal(unpacked, checkpoint.tensors[name])


def test_progress_rises_to_the_number_of_parameters(tmp_path: Path) -> None:
    seen: list[ConversionProgress] = []
    convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "fp32", progress=seen.append)

    done = [step.done for step in seen]
    assert done == sorted(done)
    assert seen[-1].weight == DOWN
    norms = 5 * 60
    assert seen[-1].total - seen[-1].done == norms


def test_progress_tells_rate_and_time_left_by_the_clock_it_is_given(tmp_path: Path) -> None:
    ticks = count(100.0, 2.0)
    seen: list[ConversionProgress] = []
    convert(
        tiny_checkpoint(tiny_config()),
        tmp_path / "model",
        "fp32",
        progress=seen.append,
        clock=lambda: next(ticks),
    )

    assert len(seen) > 2
    assert [step.seconds for step in seen] == [2.0 * (i + 1) for i in range(len(seen))]
    for step in seen:
        assert step.parameters_per_second == step.done / step.seconds
        left = step.total - step.done
        assert step.remaining_seconds == pytest.approx(left * step.seconds / step.done)


@pytest.mark.parametrize("scheme", ["fp32", "bf16", "a16w8"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_stops_with_its_name_and_index(
    tmp_path: Path, scheme: str, value: float
) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    checkpoint.tensors[DOWN][37, 149] = value

    with pytest.raises(ConversionError, match=rf"'{DOWN}' holds {value} at \[37, 149\]"):
        convert(checkpoint, tmp_path / "model", scheme)
    assert _left_in(tmp_path) == []


def test_a_norm_that_is_not_finite_stops_too(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    checkpoint.tensors["model.norm.weight"][3] = np.nan

    with pytest.raises(ConversionError, match=r"'model.norm.weight' holds nan at \[3\]"):
        convert(checkpoint, tmp_path / "model", "a16w8")


def test_missing_extra_and_misshapen_tensors_are_all_listed(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    del checkpoint.tensors[DOWN], checkpoint.tensors["model.norm.weight"]
    checkpoint.tensors["model.layers.0.surprise"] = np.zeros(3, np.float32)
    up, gate = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("up", "gate"))
    checkpoint.tensors[up] = checkpoint.tensors[up].T
    checkpoint.tensors[gate] = checkpoint.tensors[gate].astype(np.int32)

    with pytest.raises(CheckpointError) as caught:
        convert(checkpoint, tmp_path / "model", "fp32")
    message = str(caught.value)
    assert f"2 tensors are missing: {DOWN}, model.norm.weight" in message
    assert "1 tensors are not known to the architecture: model.layers.0.surprise" in message
    assert f"{up} is [60, 150] float32, expected [150, 60]" in message
    assert f"{gate} is [150, 60] int32" in message


def test_names_without_the_model_prefix_are_accepted(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config(tie_word_embeddings=False))
    expected = checkpoint.tensors[DOWN]
    checkpoint.tensors = {k.removeprefix("model."): v for k, v in checkpoint.tensors.items()}
    artifact = convert(checkpoint, tmp_path / "model", "fp32")

    np.testing.assert_array_equal(panels.unpack_f32(artifact.tensor(DOWN), 60), expected)


def test_rotary_frequencies_and_an_equal_tied_head_are_ignored(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    checkpoint.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(5, np.float32)
    checkpoint.tensors["lm_head.weight"] = checkpoint.tensors["model.embed_tokens.weight"]
    artifact = convert(checkpoint, tmp_path / "model", "fp32")

    assert "lm_head.weight" not in artifact.tensors


def test_a_tied_head_that_differs_is_a_conflict(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    checkpoint.tensors["lm_head.weight"] = checkpoint.tensors["model.embed_tokens.weight"].copy()
    checkpoint.tensors["lm_head.weight"][100, 59] += 1

    with pytest.raises(CheckpointError, match="ties the head to the embedding, but lm_head.weight"):
        convert(checkpoint, tmp_path / "model", "fp32")


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(_: ConversionProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "fp32", progress=interrupt)
    assert _left_in(tmp_path) == []


def test_a_full_disk_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1 << 20))
    checkpoint = tiny_checkpoint(tiny_config())

    with pytest.raises(ConversionError, match=r"needs \d+ MB, but the disk .* has 1 MB free"):
        convert(checkpoint, tmp_path / "model", "fp32")
    assert checkpoint.reads == []
    assert _left_in(tmp_path) == []


def test_a_disk_that_fills_up_meanwhile_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(ConversionError, match=r"failed: No space left on device; choose another"):
        convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "fp32")
    assert _left_in(tmp_path) == []


def test_the_same_conversion_is_not_done_twice(tmp_path: Path) -> None:
    first = convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "fp32")
    again = tiny_checkpoint(tiny_config())
    second = convert(again, tmp_path / "model", "fp32")

    assert again.reads == []
    assert second.identity == first.identity


def test_a_target_with_another_conversion_is_replaced_only_when_asked(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    convert(checkpoint, tmp_path / "model", "fp32")

    with pytest.raises(ConversionError, match=r"another conversion, of \S+ as \w+.*--overwrite"):
        convert(checkpoint, tmp_path / "model", "bf16")
    assert convert(checkpoint, tmp_path / "model", "fp32").metadata["scheme"] == "fp32"
    replaced = convert(checkpoint, tmp_path / "model", "bf16", overwrite=True)
    assert replaced.metadata["scheme"] == "bf16"
    assert _left_in(tmp_path) == ["model"]


def test_a_directory_of_other_files_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")

    with pytest.raises(ConversionError, match="is not a converted model"):
        convert(tiny_checkpoint(tiny_config()), tmp_path, "fp32", overwrite=True)
    assert _left_in(tmp_path) == ["thesis.tex"]


def test_four_bits_exempt_layers_by_name_and_the_head_always(tmp_path: Path) -> None:
    exempt = replace(Scheme.parse("a16w4"), exempt=("*.down_proj.weight",))
    tensors = convert(tiny_checkpoint(tiny_config()), tmp_path / "a", exempt).tensors

    assert tensors[DOWN].dtype == "BF16"
    n, k = 60, 150
    up = DOWN.replace("down_proj", "up_proj")
    assert tensors[up].shape == panel_shape(k, n, "u4") == (10, 8, 16, 4)
    assert tensors["model.embed_tokens.weight"].shape == panel_shape(101, n, "u8")


def test_another_revision_or_exemption_is_another_conversion(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tiny_config())
    exempt = replace(Scheme.parse("a16w8"), exempt=("*.down_proj.weight",))
    artifact = convert(checkpoint, tmp_path / "a", exempt)
    checkpoint.revision = "r2"
    identities = {artifact.identity}
    identities |= {convert(checkpoint, tmp_path / str(s), s).identity for s in ("a16w8", exempt)}

    assert len(identities) == 3
    assert artifact.tensors[DOWN].dtype == "BF16"


def test_a_source_whose_name_is_no_text_converts(tmp_path: Path) -> None:
    source = tmp_path / os.fsdecode(b"caf\xe9")
    write_safetensors(source)
    (source / "README.md").write_text("---\nlicense: mit\n---\n")
    path = converted(source, "fp32")

    assert Artifact.open(path).metadata["source"] == "caf\ufffd"
    assert (path / "LICENCE_NOTE.txt").read_text(encoding="utf-8").startswith("caf\ufffd: licence")


def test_a_target_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    target = tmp_path / os.fsdecode(b"caf\xe9")

    with pytest.raises(ConversionError, match=r"caf\\udce9' is not valid Unicode text"):
        convert(tiny_checkpoint(tiny_config()), target, "fp32")
    assert list(tmp_path.iterdir()) == []
