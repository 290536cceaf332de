from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.gguf_header import read_gguf_header
from tests.hub.tiny_models import write_gguf


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def entry(name: str, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def file_of(entries: list[bytes], metadata: list[bytes], data_bytes: int = 4096) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(metadata))
    header += b"".join([*metadata, *entries])
    return header + b"\0" * (-len(header) % 32 + data_bytes)


STRING = text("a.key") + struct.pack("<I", 8) + text("value")
TENSOR = entry("a", [32, 4])

DAMAGED: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "truncated"),
    "another magic": (b"<!DOCTYPE html>" * 20, "magic|begins with"),
    "a giant number of tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "of tensors is"),
    "a giant number of keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "metadata keys"),
    "a giant string": (
        file_of([], [text("k") + struct.pack("<IQ", 8, 1 << 62)]), "truncated or damaged",
    ),
    "a giant array": (file_of([], [text("k") + struct.pack("<IIQ", 9, 6, 1 << 62)]), "length of"),
    "an array of arrays": (file_of([], [text("k") + struct.pack("<IIQ", 9, 9, 1)]), "type 9"),
    "an unknown value type": (file_of([], [text("k") + struct.pack("<I", 77)]), "type 77"),
    "a repeated key": (file_of([], [STRING, STRING]), "'a.key' occurs twice"),
    "a repeated tensor": (file_of([TENSOR, TENSOR], []), "'a' occurs twice"),
    "overlapping tensors": (file_of([TENSOR, entry("b", [32, 4], 0, 32)], []), "overlap"),
    "a tensor past the end": (file_of([entry("a", [32, 64])], []), "file ends at"),
    "an offset past the end": (file_of([entry("a", [32], 0, 1 << 40)], []), "file ends at"),
    "an unaligned offset": (file_of([entry("a", [32], 0, 8)], []), "damaged"),
    "an overflowing product": (file_of([entry("a", [1 << 62, 1 << 62])], []), "file ends at"),
    "an empty axis": (file_of([entry("a", [0, 4])], []), "empty axis"),
    "rank zero": (file_of([entry("a", [])], []), "rank 0"),
    "rank five": (file_of([entry("a", [1] * 5)], []), "rank 5"),
    "an unknown quantisation": (file_of([entry("a", [32], 999)], []), "type 999"),
    "a part of a block": (file_of([entry("a", [33], 8)], []), "33 elements"),
    "text that is not UTF-8": (
        file_of([], [text("k") + struct.pack("<IQ", 8, 1) + b"\xff"]), "not UTF-8",
    ),
    "an alignment of three": (
        file_of([], [text("general.alignment") + struct.pack("<II", 4, 3)]), "power of two",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_header_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    content, reason = DAMAGED[case]
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=reason):
        read_gguf_header(path)


def test_the_same_header_undamaged_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sound.gguf"
    path.write_bytes(file_of([TENSOR, entry("b", [32, 4], 0, 512)], [STRING]))

    header = read_gguf_header(path)

    assert header.metadata == {"a.key": "value"}
    assert header.tensors["b"].shape == (4, 32)
    assert header.tensors["b"].offset == header.tensors["a"].offset + 512


@pytest.mark.parametrize("version", [1, 4, 3 << 24], ids=["old", "new", "big-endian"])
def test_another_version_is_refused_by_number(version: int, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))

    with pytest.raises(UnsupportedModelError, match=str(version)):
        read_gguf_header(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.gguf"):
        read_gguf_header(tmp_path / "absent.gguf")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.mark.parametrize("keep", [0.001, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused(tiny: Path, tmp_path: Path, keep: float) -> None:
    content = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: int(len(content) * keep)])

    with pytest.raises(CheckpointError, match="truncated|more than the file"):
        read_gguf_header(path)


@pytest.fixture(scope="module")
def damage(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, bytes], Path]:
    content = tiny.read_bytes()
    path = tmp_path_factory.mktemp("damage") / "damaged.gguf"

    def apply(position: int, replacement: bytes) -> Path:
        end = position + len(replacement)
        path.write_bytes(content[:position] + replacement + content[end:])
        return path

    return apply


@given(position=st.integers(0, 12_000), replacement=st.binary(min_size=1, max_size=9))
def test_no_damage_gets_past_the_checks(
    damage: Callable[[int, bytes], Path], position: int, replacement: bytes
) -> None:
    path = damage(position, replacement)
    try:
        header = read_gguf_header(path)
    except (CheckpointError, UnsupportedModelError):
        return

    for tensor in header.tensors.values():
        assert 0 < tensor.offset <= path.stat().st_size - tensor.num_bytes
