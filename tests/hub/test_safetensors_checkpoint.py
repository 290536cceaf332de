from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub import SafetensorsCheckpoint, open_checkpoint
from dashinfer_lab.tensor import TensorInfo
from tests.hub.tiny_models import CONFIG, weights, write_safetensors

INDEX = "model.safetensors.index.json"
EMBEDDING = "model.embed_tokens.weight"


def rewrite_index(directory: Path, shard: str) -> None:
    """Let the index place every tensor in the file `shard`."""
    path = directory / INDEX
    index = json.loads(path.read_text())
    index["weight_map"] = dict.fromkeys(index["weight_map"], shard)
    path.write_text(json.dumps(index))


@pytest.mark.parametrize("num_shards", [1, 3])
def test_weights_read_whole_and_by_rows_in_one_file_or_several(
    tmp_path: Path, num_shards: int
) -> None:
    written = write_safetensors(tmp_path, num_shards=num_shards)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        assert set(checkpoint.names()) == set(written)
        for name, weight in written.items():
            np.testing.assert_array_equal(checkpoint.read(name), weight)
            np.testing.assert_array_equal(checkpoint.read(name, slice(3, 10)), weight[3:10])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_elements_stay_as_stored(tmp_path: Path, dtype: type) -> None:
    stored = {name: weight.astype(dtype) for name, weight in weights().items()}
    write_safetensors(tmp_path, tensors=stored)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        read = checkpoint.read(EMBEDDING, slice(1, 4))

        expected = TensorInfo(stored[EMBEDDING].shape, np.dtype(dtype).name)
        assert checkpoint.info(EMBEDDING) == expected
        assert read.dtype == dtype
        np.testing.assert_array_equal(read.view(np.uint8), stored[EMBEDDING][1:4].view(np.uint8))


def test_each_read_is_an_array_of_its_own(tmp_path: Path) -> None:
    written = write_safetensors(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        checkpoint.read(EMBEDDING)[:] = 0

        np.testing.assert_array_equal(checkpoint.read(EMBEDDING), written[EMBEDDING])


def test_names_without_the_prefix_are_accepted(tmp_path: Path) -> None:
    bare = {name.removeprefix("model."): weight for name, weight in weights().items()}
    bare["lm_head.weight"] = np.ones((3, 5), np.float32)
    bare["layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    write_safetensors(tmp_path, tensors=bare)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        assert set(checkpoint.names()) == {*weights(), "lm_head.weight"}


def test_a_missing_shard_is_named_with_what_it_held(tmp_path: Path) -> None:
    write_safetensors(tmp_path, num_shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()

    with pytest.raises(CheckpointError, match=r"model-00002-of-00003.safetensors \(7 tensors\)"):
        SafetensorsCheckpoint(tmp_path)


def left_out(directory: Path) -> str:
    """Let the index say nothing of a tensor; its name."""
    write_safetensors(directory, num_shards=3)
    path = directory / INDEX
    index = json.loads(path.read_text())
    name = min(index["weight_map"])
    del index["weight_map"][name]
    path.write_text(json.dumps(index))
    return name


def test_a_tensor_that_the_index_leaves_out_is_not_lost(tmp_path: Path) -> None:
    name = left_out(tmp_path)

    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        assert set(checkpoint.names()) == set(weights())
        np.testing.assert_array_equal(checkpoint.read(name), weights()[name])


def test_a_tensor_that_the_index_leaves_out_of_two_files_is_refused(tmp_path: Path) -> None:
    name = left_out(tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        save_file({**load_file(path), name: np.zeros(3, np.float32)}, path)

    with pytest.raises(CheckpointError, match=f"hold '{name}', and .* names neither"):
        SafetensorsCheckpoint(tmp_path)


def test_shards_beside_a_whole_file_are_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path, num_shards=3)
    save_file(weights(), tmp_path / "model.safetensors")

    with pytest.raises(CheckpointError, match=r"holds model\.safetensors beside"):
        SafetensorsCheckpoint(tmp_path)


def test_a_shard_that_lacks_its_tensor_is_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path, num_shards=3)
    rewrite_index(tmp_path, "model-00001-of-00003.safetensors")

    with pytest.raises(CheckpointError, match="lack"):
        SafetensorsCheckpoint(tmp_path)


@pytest.mark.parametrize(
    "shard",
    [
        "../outside.safetensors",
        "/etc/outside.safetensors",
        "a/b.safetensors",
        "..",
        "a\\b.safetensors",
    ],
)
def test_an_index_that_leaves_the_directory_is_refused(tmp_path: Path, shard: str) -> None:
    model = tmp_path / "model"
    write_safetensors(model, num_shards=2)
    save_file(weights(), tmp_path / "outside.safetensors")
    rewrite_index(model, shard)

    with pytest.raises(CheckpointError, match="plain file name|only safetensors"):
        SafetensorsCheckpoint(model)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_link_out_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    model = tmp_path / "model"
    write_safetensors(model)
    (model / name).rename(tmp_path / name)
    (model / name).symlink_to(tmp_path / name)

    with pytest.raises(CheckpointError, match="outside the model's directory"):
        SafetensorsCheckpoint(model)


def test_a_snapshot_may_link_to_the_blobs_of_its_hub(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "abc123"
    written = write_safetensors(snapshot)
    blobs = tmp_path / "models--owner--name" / "blobs"
    blobs.mkdir()
    for file in list(snapshot.iterdir()):
        file.rename(blobs / f"blob-{file.name}")
        file.symlink_to(f"../../blobs/blob-{file.name}")
    with SafetensorsCheckpoint(snapshot) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read(EMBEDDING), written[EMBEDDING])
        assert (checkpoint.source, checkpoint.revision) == ("owner/name", "abc123")


def test_several_files_without_an_index_are_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path, num_shards=2)
    (tmp_path / INDEX).unlink()

    with pytest.raises(CheckpointError, match=INDEX):
        SafetensorsCheckpoint(tmp_path)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")

    with pytest.raises(CheckpointError, match="pytorch_model.bin is a pickle.*give LLM the model"):
        open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="Pickles.*give LLM the model"):
        open_checkpoint(tmp_path / "pytorch_model.bin")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="absent does not exist"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="no safetensors file"):
        open_checkpoint(tmp_path)
    write_safetensors(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(tmp_path)


def test_a_half_written_file_never_loads(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    for keep in (0, 7, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:keep])

        with pytest.raises(CheckpointError):
            SafetensorsCheckpoint(tmp_path)


def test_a_file_cut_after_opening_is_noticed_when_read(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    path = tmp_path / "model.safetensors"
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        last = max(checkpoint.names(), key=lambda name: checkpoint._tensor(name).stored.offset)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 4)

        with pytest.raises(CheckpointError, match="truncated"):
            checkpoint.read(last)


def test_the_licence_comes_from_the_front_matter(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Model\n")
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        assert checkpoint.licence == "apache-2.0"


def test_the_revision_changes_with_the_config(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "one")
    write_safetensors(tmp_path / "two", config=CONFIG | {"rope_theta": 5e5})
    with (
        SafetensorsCheckpoint(tmp_path / "one") as one,
        SafetensorsCheckpoint(tmp_path / "two") as two,
    ):
        assert one.revision != two.revision


def test_the_revision_changes_with_the_weights(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        before = checkpoint.revision
    (file,) = tmp_path.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        assert checkpoint.revision != before


def test_tokenizer_files_are_copied_with_template_and_every_eos(tmp_path: Path) -> None:
    model, target = tmp_path / "model", tmp_path / "converted"
    write_safetensors(model)
    (model / "tokenizer.json").write_text('{"model": {}}')
    (model / "tokenizer_config.json").write_text('{"eos_token": "</s>", "chat_template": "old"}')
    (model / "chat_template.jinja").write_text("{{ messages }}")
    (model / "generation_config.json").write_text('{"eos_token_id": [7, 2], "top_p": 0.8}')
    with SafetensorsCheckpoint(model) as checkpoint:
        checkpoint.write_tokenizer(target)

    generation = json.loads((target / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [2, 7], "top_p": 0.8}
    config = json.loads((target / "tokenizer_config.json").read_text())
    assert config == {"eos_token": "</s>", "chat_template": "{{ messages }}"}
    assert (target / "tokenizer.json").read_text() == '{"model": {}}'


@pytest.mark.parametrize("ends", [[[]], {}, "</s>", -1, True, [None], 1.5], ids=repr)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_an_end_that_is_no_token_id_is_refused(tmp_path: Path, name: str, ends: object) -> None:
    write_safetensors(tmp_path)
    path = tmp_path / name
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(found | {"eos_token_id": ends}))

    checkpoint = SafetensorsCheckpoint(tmp_path)
    with checkpoint, pytest.raises(CheckpointError, match=f"{name}: eos_token_id is"):
        checkpoint.write_tokenizer(tmp_path / "out")


def test_half_a_surrogate_pair_is_copied_as_it_was_written(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "\\ud800 \U0001f600"}')
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        checkpoint.write_tokenizer(tmp_path / "out")

    written = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert written == {"chat_template": "\ud800 \U0001f600"}


def test_a_checkpoint_without_a_tokenizer_writes_what_it_has(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model")
    with SafetensorsCheckpoint(tmp_path / "model") as checkpoint:
        checkpoint.write_tokenizer(tmp_path / "converted")

    assert [path.name for path in (tmp_path / "converted").iterdir()] == ["generation_config.json"]
