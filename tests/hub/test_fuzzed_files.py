"""Files nobody vouches for: refused or read, never a crash, a hang or a large allocation."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from dashinfer_lab.errors import CheckpointError, DashInferLabError
from dashinfer_lab.hub import model_config
from dashinfer_lab.hub.gguf_architectures import ARCHITECTURES
from dashinfer_lab.hub.gguf_checkpoint import GgufCheckpoint
from dashinfer_lab.hub.gguf_config import hugging_face_config
from dashinfer_lab.hub.gguf_header import read_gguf_header
from dashinfer_lab.hub.gguf_tokenizer import generation_config, tokenizer_config, tokenizer_json
from dashinfer_lab.hub.safetensors_header import read_safetensors_header
from dashinfer_lab.hub.tokenizer_files import copy_tokenizer
from dashinfer_lab.tokenizer import Tokenizer
from tests.hub.gguf_families import GGUF_CASES, write_family_gguf
from tests.hub.test_sentencepiece_files import trained
from tests.hub.test_tiktoken_files import TABLE, write
from tests.hub.tiny_models import write_gguf

T = TypeVar("T")

GGUF_KEYS = (
    "context_length", "embedding_length", "feed_forward_length", "block_count",
    "attention.head_count", "attention.layer_norm_rms_epsilon", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.sliding_window",
    "attention.sliding_window_pattern", "expert_count", "expert_used_count", "rope.freq_base",
    "rope.freq_base_swa", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
    "attn_logit_softcapping", "expert_gating_func",
)  # fmt: skip

# A file of some kilobytes may cost its own size a few dozen times over, for Python's objects.
_PEAK_BYTES = 8 << 20
_bounded = settings(
    max_examples=60, deadline=3000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def without_a_large_allocation(read: Callable[[], T]) -> T:
    tracemalloc.start()
    try:
        return read()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < _PEAK_BYTES


class Edits:
    """Bytes overwritten, taken out or repeated."""

    def __init__(self, edits: list[tuple[int, int, bytes]]) -> None:
        self._edits = edits

    def __call__(self, content: bytes) -> bytes:
        for place, gone, added in self._edits:
            start = place % (len(content) + 1)
            content = content[:start] + added + content[start + gone :]
        return content

    def __repr__(self) -> str:
        return f"Edits({self._edits})"


_WORDS = [b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 1 << 62), b'{"', b'"', b"[", b"99", b",", b"-1"]
edits = st.lists(
    st.tuples(
        st.integers(0, 1 << 14),
        st.integers(0, 9),
        st.sampled_from(_WORDS) | st.binary(max_size=9),
    ),
    min_size=1,
    max_size=4,
).map(Edits)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def verdicts(path: Path, content: bytes) -> tuple[bool, str]:
    """Whether the safetensors package takes the file, and why we refuse it, "" where we do not."""
    path.write_bytes(content)
    try:
        safetensors.deserialize(content)
        theirs = True
    except safetensors.SafetensorError:
        theirs = False
    try:
        without_a_large_allocation(lambda: read_safetensors_header(path))
        return theirs, ""
    except CheckpointError as error:
        return theirs, str(error)


STRICTER = ("empty axis", "unknown element type", "occurs twice", "malformed")
"""Where we refuse what the package takes: weights without elements, types that no weight here has,
a repeated name, more than eight axes, and fields of an entry that it overlooks."""


@_bounded
@given(edit=edits, tensors=st.integers(0, 3))
def test_damaged_safetensors_meet_the_verdict_of_the_package(
    folder: Path, edit: Edits, tensors: int
) -> None:
    arrays = {f"t{i}": np.ones((i + 1, 3), np.float32) for i in range(tensors)}
    theirs, refusal = verdicts(folder / "m.safetensors", edit(save(arrays)))

    assert theirs == (not refusal) or any(reason in refusal for reason in STRICTER), refusal


_NUMBERS = st.integers(0, 24) | st.sampled_from([-1, 1 << 63, 1 << 64, 1.0, "3", None, True])
_ENTRIES = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["F32", "U8", "BF16", "I64", "F8_E4M3", "?", 3]),
     "shape": st.lists(_NUMBERS, max_size=3),
     "data_offsets": st.lists(_NUMBERS, max_size=3)},
    optional={"extra": _NUMBERS},
)  # fmt: skip


@_bounded
@given(header=st.dictionaries(st.sampled_from("abc"), _ENTRIES, max_size=3), data=st.integers(0, 9))
def test_any_header_meets_the_verdict_of_the_package(
    folder: Path, header: dict[str, Any], data: int
) -> None:
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + b"\0" * (data * 4)
    theirs, refusal = verdicts(folder / "h.safetensors", content)

    assert theirs == (not refusal) or (
        theirs and any(reason in refusal for reason in STRICTER)
    ), refusal  # fmt: skip


@pytest.fixture(scope="module")
def ggufs(folder: Path) -> dict[str, bytes]:
    """Files with names, order and experts of several families."""
    write_gguf(folder / "tiny.gguf")
    files = {"smollm": (folder / "tiny.gguf").read_bytes()}
    for each in GGUF_CASES:
        if str(each) in ("mixtral", "chatglm", "gemma3", "qwen2_moe"):
            path = write_family_gguf(each, folder / f"{each}.gguf")
            files[str(each)] = path.read_bytes()
    return files


@_bounded
@given(edit=edits, name=st.sampled_from(["smollm", "mixtral", "chatglm", "gemma3", "qwen2_moe"]))
def test_a_damaged_gguf_file_is_refused_or_read(
    folder: Path, ggufs: dict[str, bytes], edit: Edits, name: str
) -> None:
    path = folder / "m.gguf"
    path.write_bytes(edit(ggufs[name]))
    with suppress(DashInferLabError):
        without_a_large_allocation(lambda: read_gguf_header(path))
    with suppress(DashInferLabError), GgufCheckpoint(path) as checkpoint:
        checkpoint.write_tokenizer(folder)
        for weight in checkpoint.names():
            with suppress(DashInferLabError):
                found = checkpoint.read(weight, slice(1, 3))
                assert found.shape[1:] == checkpoint.info(weight).shape[1:]
        model_config(checkpoint.config)


_KINDS = st.integers(0, 99) | st.floats() | st.booleans() | st.lists(st.integers(0, 3), max_size=3)


@_bounded
@given(
    architecture=st.sampled_from(sorted(ARCHITECTURES)),
    changes=st.dictionaries(st.sampled_from(GGUF_KEYS), _KINDS | st.just("1"), max_size=4),
)
def test_any_settings_of_a_gguf_file_are_refused_or_make_a_config(
    architecture: str, changes: dict[str, object]
) -> None:
    sizes = dict.fromkeys(GGUF_KEYS[:6], 64) | {"block_count": 2, "attention.head_count": 4}
    metadata: dict[str, object] = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in (sizes | changes).items()}
    with suppress(DashInferLabError):
        model_config(hugging_face_config(metadata, {"token_embd.weight": (64000, 64)}))


_BASES: dict[str, dict[str, object]] = {
    "llama": {
        "tokens": ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a"],
        "scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0],
        "token_type": [2, 3, 3, 1, 1, 1, 1, 1],
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "gpt2": {
        "pre": "smollm",
        "tokens": ["<s>", "</s>", "a", "b", "Ġ", "ab", "Ġa"],
        "token_type": [3, 3, 1, 1, 1, 1, 1],
        "merges": ["a b", "Ġ a"],
        "bos_token_id": 0,
        "eos_token_id": 1,
    },
}
_ANY = _NUMBERS | st.floats() | st.sampled_from(["gpt2", "llama", "qwen2", "<s>", "a b", ""])
_KEYS = (*_BASES["llama"], "model", "pre", "merges", "add_bos_token", "add_eos_token",
         "add_space_prefix", "unknown_token_id", "eot_token_id")  # fmt: skip
_CHANGES = st.dictionaries(st.sampled_from(_KEYS), _ANY | st.lists(_ANY, max_size=8), max_size=2)
_PLACES = st.tuples(st.sampled_from(["tokens", "scores", "token_type", "merges"]),
                    st.integers(0, 6), _ANY)  # fmt: skip


@_bounded
@given(kind=st.sampled_from(sorted(_BASES)), changes=_CHANGES, places=st.lists(_PLACES, max_size=2))
def test_any_metadata_is_refused_or_makes_a_tokenizer(
    folder: Path, kind: str, changes: dict[str, object], places: list[tuple[str, int, object]]
) -> None:
    changed: dict[str, Any] = {"model": kind, **_BASES[kind]}
    for key, index, value in places:
        if key in changed:
            listed = changed[key]
            changed[key] = [*listed[:index], value, *listed[index + 1 :]]
    metadata = {f"tokenizer.ggml.{key}": value for key, value in (changed | changes).items()}
    directory = folder / "metadata"
    directory.mkdir(exist_ok=True)
    with suppress(DashInferLabError):
        parts = (generation_config, tokenizer_config, tokenizer_json)
        for part in parts:
            written = json.dumps(part(metadata))
            (directory / f"{part.__name__.replace('_json', '')}.json").write_text(written)
        tokenizer = Tokenizer.load(directory)
        tokenizer.decode(tokenizer.encode("a b"))


@pytest.fixture(scope="module")
def pieces() -> bytes:
    return trained("gemma")


@_bounded
@given(edit=edits)
def test_a_damaged_sentencepiece_model_is_refused_or_read(
    folder: Path, pieces: bytes, edit: Edits
) -> None:
    source = folder / "pieces"
    source.mkdir(exist_ok=True)
    (source / "tokenizer.model").write_bytes(edit(pieces))
    with suppress(DashInferLabError):
        copy_tokenizer(source, {}, folder)
        tokenizer = Tokenizer.load(folder)
        tokenizer.decode(tokenizer.encode("a b"))


@_bounded
@given(edit=edits)
def test_a_damaged_tiktoken_table_is_refused_or_read(folder: Path, edit: Edits) -> None:
    source = write(folder / "table", "qwen.tiktoken", TABLE)
    path = source / "qwen.tiktoken"
    path.write_bytes(edit(path.read_bytes()))
    with suppress(DashInferLabError):
        copy_tokenizer(source, {}, folder)
        tokenizer = Tokenizer.load(folder)
        tokenizer.decode(tokenizer.encode("a b"))
