from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.safetensors_header import (
    parse_safetensors_header,
    read_safetensors_header,
)

PATH = Path("model.safetensors")


def entry(dtype: object, shape: object, offsets: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def parse(header: dict[str, object], data_bytes: int) -> dict[str, object]:
    text = json.dumps(header).encode()
    return dict(parse_safetensors_header(text, 8 + len(text) + data_bytes, PATH))


LYING: dict[str, tuple[dict[str, object], str]] = {
    "a negative offset": ({"a": entry("F32", [4], [-16, 0])}, "malformed"),
    "an offset past the end": ({"a": entry("F32", [4], [1 << 40, (1 << 40) + 16])}, "hole"),
    "a reversed span": ({"a": entry("F32", [4], [16, 0])}, "span -16"),
    "a span too short": ({"a": entry("F32", [4], [0, 12])}, "takes 16 bytes"),
    "an overflowing product": (
        {"a": entry("F32", [1 << 62, 1 << 62, 1 << 62], [0, 16])}, "takes",
    ),
    "a wrapped product": ({"a": entry("F32", [1 << 62, 4], [0, 0])}, "takes"),
    "an empty axis": ({"a": entry("F32", [0, 4], [0, 0])}, "empty axis"),
    "an unknown type": ({"a": entry("F31", [4], [0, 16])}, "F31"),
    "a type that is no text": ({"a": entry(["F32"], [4], [0, 16])}, "unknown element type"),
    "a shape with text": ({"a": entry("F32", ["4"], [0, 16])}, "malformed"),
    "a shape with a fraction": ({"a": entry("F32", [4.0], [0, 16])}, "malformed"),
    "a shape with a truth value": ({"a": entry("F32", [True], [0, 4])}, "malformed"),
    "three offsets": ({"a": entry("F32", [4], [0, 8, 16])}, "malformed"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [4]}}, "malformed"),
    "an entry that is a list": ({"a": [1]}, "malformed"),
    "an overlap": (
        {"a": entry("F32", [4], [0, 16]), "b": entry("F32", [4], [12, 28])}, "overlaps",
    ),
    "a hole": ({"a": entry("F32", [2], [8, 16])}, "hole"),
    "fewer tensors than data": ({"a": entry("F32", [2], [0, 8])}, "should have"),
}  # fmt: skip


@pytest.mark.parametrize("case", LYING)
def test_a_lying_header_is_refused_with_its_reason(case: str) -> None:
    header, reason = LYING[case]

    with pytest.raises(CheckpointError, match=reason):
        parse(header, 16)


def test_an_honest_header_is_read_in_the_order_of_the_data() -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("F32", [1, 2], [8, 16]),
        "a": entry("BF16", [4], [0, 8]),
    }

    assert list(parse(header, 16)) == ["a", "b"]


def test_a_repeated_key_is_refused() -> None:
    body = json.dumps(entry("U8", [4], [0, 4]))
    text = f'{{"a": {body}, "a": {body}}}'.encode()

    with pytest.raises(CheckpointError, match="'a' occurs twice"):
        parse_safetensors_header(text, 8 + len(text) + 4, PATH)


FILES = {
    "nothing": (b"", "0 bytes"),
    "seven bytes": (b"\0" * 7, "7 bytes"),
    "zeros": (b"\0" * 4096, "header of 0 bytes"),
    "a web page": (b"<!DOCTYPE html><html>" * 100, "web page"),
    "a header of 2^63 bytes": (struct.pack("<Q", 1 << 63) + b"{}", str(1 << 63)),
    "a header past the end": (struct.pack("<Q", 100) + b"{}", "100 bytes"),
    "no JSON": (struct.pack("<Q", 4) + b"oops", "not valid JSON"),
    "a list": (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
    "no UTF-8": (struct.pack("<Q", 2) + b"\xff\xff", "not valid JSON"),
    "deep nesting": (struct.pack("<Q", 200_000) + b"[" * 200_000, "not valid JSON"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_safetensors_file_is_named(case: str, tmp_path: Path) -> None:
    content, reason = FILES[case]
    (tmp_path / "bad.safetensors").write_bytes(content)

    with pytest.raises(CheckpointError, match=reason) as refusal:
        read_safetensors_header(tmp_path / "bad.safetensors")
    assert "bad.safetensors" in str(refusal.value)


def test_a_truncated_file_tells_expected_and_actual_bytes(tmp_path: Path) -> None:
    content = save({"a": np.ones((3, 5), np.float32)})
    path = tmp_path / "cut.safetensors"
    path.write_bytes(content[:-1])

    with pytest.raises(CheckpointError, match=f"{len(content)} bytes.*{len(content) - 1}"):
        read_safetensors_header(path)


shapes = st.lists(st.integers(1, 5), max_size=3).map(tuple)
dtypes = st.sampled_from([np.float32, np.float16, np.uint8, np.int64])
arrays = st.builds(lambda shape, dtype: np.ones(shape, dtype), shapes, dtypes)


@given(tensors=st.dictionaries(st.text(min_size=1, max_size=6), arrays, min_size=1, max_size=5))
def test_whatever_the_library_writes_is_read(tensors: dict[str, np.ndarray]) -> None:
    content = save(tensors)
    length = struct.unpack("<Q", content[:8])[0]

    read = parse_safetensors_header(content[8 : 8 + length], len(content), PATH)

    assert {name: (it.info.shape, it.info.dtype) for name, it in read.items()} == {
        name: (array.shape, array.dtype.name) for name, array in tensors.items()
    }


numbers = st.one_of(st.integers(-3, 40), st.sampled_from([1 << 31, 1 << 62, 1 << 64]), st.floats())
values = st.one_of(numbers, st.text(max_size=3), st.booleans(), st.none())
lists = st.one_of(st.lists(values, max_size=4), values)
entries = st.builds(entry, st.sampled_from(["F32", "U8", "BF16", "X", 3]), lists, lists)


@given(header=st.dictionaries(st.text(max_size=3), entries, max_size=4), data=st.integers(0, 64))
def test_what_passes_the_checks_lies_in_the_file_and_apart(
    header: dict[str, object], data: int
) -> None:
    text = json.dumps(header).encode()
    num_bytes = 8 + len(text) + data
    try:
        tensors = parse_safetensors_header(text, num_bytes, PATH)
    except CheckpointError:
        return

    end = 8 + len(text)
    for tensor in tensors.values():
        assert tensor.offset == end
        end += tensor.info.num_bytes
    assert end == num_bytes
