"""The weights file: what is written can be read by safetensors; what lies is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from dashinfer_lab.convert.container import ContainerWriter, read_container
from dashinfer_lab.errors import ArtifactError

SHAPES = {"a": (3, 5), "b.scale": (2, 1, 16), "c": (64,)}


def _write(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    arrays = {
        "a": np.arange(15, dtype=np.float32).reshape(3, 5),
        "b.scale": np.arange(32, dtype=np.float16).reshape(2, 1, 16),
        "c": np.arange(64, dtype=np.uint8),
    }
    with ContainerWriter(path, SHAPES, 100) as container:
        for name, dtype in zip(arrays, ("F32", "F16", "U8"), strict=True):
            assert container.append(name, dtype, SHAPES[name], [arrays[name][:1], arrays[name][1:]])
        container.finish({"format_version": "1.0"})
    return arrays


def test_safetensors_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "w"
    arrays = _write(path)

    with safe_open(path, "np") as opened:
        assert opened.metadata() == {"format_version": "1.0"}
        for name, array in arrays.items():
            np.testing.assert_array_equal(opened.get_tensor(name), array)


def test_every_tensor_is_aligned_and_pads_are_not_shown(tmp_path: Path) -> None:
    _write(tmp_path / "w")
    index = read_container(tmp_path / "w")

    assert list(index.tensors) == list(SHAPES)
    assert [tensor.offset % 64 for tensor in index.tensors.values()] == [0, 0, 0]
    assert {name: tensor.shape for name, tensor in index.tensors.items()} == SHAPES


def test_blocks_that_end_early_leave_no_trace(tmp_path: Path) -> None:
    with ContainerWriter(tmp_path / "w", {"a": (4,)}, 100) as container:
        assert not container.append("a", "F32", (4,), [np.zeros(3, np.float32)])
        assert container.append("a", "F32", (4,), [np.ones(4, np.float32)])
        container.finish({})

    assert list(read_container(tmp_path / "w").tensors) == ["a"]


def test_a_file_without_its_header_is_refused(tmp_path: Path) -> None:
    with ContainerWriter(tmp_path / "w", {"a": (64,)}, 100) as container:
        container.append("a", "F32", (64,), [np.zeros(64, np.float32)])

    with pytest.raises(ArtifactError, match="header claims 0 bytes"):
        read_container(tmp_path / "w")


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 200, -64, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, length: int) -> None:
    _write(tmp_path / "w")
    content = (tmp_path / "w").read_bytes()
    (tmp_path / "w").write_bytes(content[:length])

    with pytest.raises(ArtifactError, match="damaged"):
        read_container(tmp_path / "w")


Edit = Callable[[dict[str, Any]], object]

LIES: dict[str, Edit] = {
    "negative offset": lambda h: h["a"].update(data_offsets=[-4, 56]),
    "beyond the end": lambda h: h["c"].update(data_offsets=[128, 1 << 62]),
    "overlap": lambda h: h["b.scale"].update(data_offsets=[0, 64]),
    "shape and bytes disagree": lambda h: h["a"].update(shape=[3, 6]),
    "negative shape": lambda h: h["a"].update(shape=[-3, -5]),
    "product overflows 64 bits": lambda h: h["a"].update(shape=[1 << 40, 1 << 40]),
    "shape of text": lambda h: h["a"].update(shape="35"),
    "shape of booleans": lambda h: h["c"].update(shape=[64, True]),
    "unknown type": lambda h: h["a"].update(dtype="F80"),
    "no offsets": lambda h: h["a"].pop("data_offsets"),
    "an entry that is a list": lambda h: h.update(a=[]),
    "a missing tensor": lambda h: h.pop("b.scale"),
    "numbers in metadata": lambda h: h["__metadata__"].update(format_version=1),
    "metadata that is a list": lambda h: h.update(__metadata__=[]),
}


def _rewrite_header(path: Path, text: bytes) -> None:
    content = path.read_bytes()
    room = int.from_bytes(content[:8], "little")
    assert len(text) <= room
    path.write_bytes(content[:8] + text.ljust(room) + content[8 + room :])


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_header_is_refused(tmp_path: Path, lie: str) -> None:
    path = tmp_path / "w"
    _write(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    LIES[lie](header)
    _rewrite_header(path, json.dumps(header, separators=(",", ":")).encode())

    with pytest.raises(ArtifactError, match=r"re-convert"):
        read_container(path)


@pytest.mark.parametrize(
    "text",
    [
        b"<html>503</html>",
        b"[]",
        b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":1}',
        b"[" * 600,
        b"\xff\xfe",
    ],
)
def test_a_header_that_is_not_an_object_of_unique_names_is_refused(
    tmp_path: Path, text: bytes
) -> None:
    _write(tmp_path / "w")
    _rewrite_header(tmp_path / "w", text)

    with pytest.raises(ArtifactError, match="its header is not"):
        read_container(tmp_path / "w")


def test_a_header_length_of_2_to_the_63_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes((1 << 63).to_bytes(8, "little") + b"{}")

    with pytest.raises(ArtifactError, match="claims 9223372036854775808 bytes of 10"):
        read_container(tmp_path / "w")


def test_a_file_of_zeros_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(bytes(4096))

    with pytest.raises(ArtifactError, match="header claims 0 bytes of 4096"):
        read_container(tmp_path / "w")


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"absent cannot be read"):
        read_container(tmp_path / "absent")
