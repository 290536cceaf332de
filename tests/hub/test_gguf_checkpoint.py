from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from dashinfer_lab.config import RopeConfig
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub import GgufCheckpoint, model_config, open_checkpoint
from dashinfer_lab.hub.gguf_rope import rope_parameters
from dashinfer_lab.hub.gguf_tokenizer import generation_config, tokenizer_json
from dashinfer_lab.tensor import TensorInfo
from tests.hub.tiny_models import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    VOCAB,
    interleaved,
    weights,
    write_gguf,
)

KINDS = [Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_1, Kind.Q4_0]
RANGES = [None, slice(0, 1), slice(1, 8), slice(13, 31), slice(7, None), slice(5, 5)]
Q = "model.layers.1.self_attn.q_proj.weight"
UP = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[GgufCheckpoint, dict[str, np.ndarray[Any, Any]]]:
    """A checkpoint and its weights, rounded as its storage format rounds them."""
    kind = request.param
    path = tmp_path_factory.mktemp(kind.name) / "tiny.gguf"
    originals = write_gguf(path, kind)
    rounded = {
        name: weight if weight.ndim == 1 else dequantize(quantize(weight, kind), kind)
        for name, weight in originals.items()
    }
    return GgufCheckpoint(path), rounded


@pytest.mark.parametrize("rows", RANGES, ids=str)
def test_rows_of_every_weight_equal_those_of_the_whole(
    stored: tuple[GgufCheckpoint, dict[str, np.ndarray[Any, Any]]], rows: slice | None
) -> None:
    checkpoint, rounded = stored

    for name, weight in rounded.items():
        read = checkpoint.read(name, rows)

        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, weight if rows is None else weight[rows])


def test_names_and_shapes_are_those_of_hugging_face(
    stored: tuple[GgufCheckpoint, dict[str, np.ndarray[Any, Any]]],
) -> None:
    checkpoint, rounded = stored

    assert set(checkpoint.names()) == set(rounded)
    for name, weight in rounded.items():
        assert checkpoint.info(name) == TensorInfo(weight.shape, "float32")


def test_query_rows_of_another_architecture_stay_where_they_are(tmp_path: Path) -> None:
    originals = write_gguf(tmp_path / "qwen.gguf", architecture="qwen2")
    with GgufCheckpoint(tmp_path / "qwen.gguf") as checkpoint:
        np.testing.assert_array_equal(checkpoint.read(Q), originals[Q])


def test_query_and_key_biases_are_reordered_like_their_weights(tmp_path: Path) -> None:
    bias = np.arange(HEADS * HEAD_DIM, dtype=np.float32)
    key_bias = np.arange(KV_HEADS * HEAD_DIM, dtype=np.float32)
    write_gguf(
        tmp_path / "bias.gguf",
        extra={
            "blk.0.attn_q.bias": interleaved(bias, HEADS),
            "blk.0.attn_k.bias": interleaved(key_bias, KV_HEADS),
        },
    )
    with GgufCheckpoint(tmp_path / "bias.gguf") as checkpoint:
        prefix = "model.layers.0.self_attn"

        np.testing.assert_array_equal(checkpoint.read(f"{prefix}.q_proj.bias"), bias)
        np.testing.assert_array_equal(
            checkpoint.read(f"{prefix}.k_proj.bias", slice(3, 19)), key_bias[3:19]
        )
        assert model_config(checkpoint.config).attention_bias


def test_the_config_is_what_the_model_was_made_with(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    with GgufCheckpoint(tmp_path / "tiny.gguf") as checkpoint:
        config = model_config(checkpoint.config)

    assert (config.hidden_size, config.vocab_size, config.head_dim) == (HIDDEN, VOCAB, HEAD_DIM)
    assert (config.num_heads, config.num_kv_heads) == (HEADS, KV_HEADS)
    assert config.norm_eps == 1e-5  # exactly: the 32-bit value is read as the decimal it stands for
    assert config.rope.theta == 100000.0
    assert config.tie_word_embeddings


def test_a_head_of_its_own_is_not_tied(tmp_path: Path) -> None:
    head = weights()["model.embed_tokens.weight"]
    write_gguf(tmp_path / "tiny.gguf", extra={"output.weight": head})
    with GgufCheckpoint(tmp_path / "tiny.gguf") as checkpoint:
        assert not model_config(checkpoint.config).tie_word_embeddings
        np.testing.assert_array_equal(checkpoint.read("lm_head.weight"), head)


def llama3_factors(factor: float, original: int, num_pairs: int) -> np.ndarray[Any, Any]:
    """The factors of llama.cpp's Llama converter, pair by pair, for write_gguf's base of 1e5."""
    factors: list[float] = []
    for pair in range(num_pairs):
        wavelength = 2 * np.pi * 1e5 ** (pair / num_pairs)
        if wavelength < original / 4:
            factors.append(1)
        elif wavelength > original:
            factors.append(factor)
        else:
            smooth = (original / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


LLAMA3 = "rope_freqs.weight"


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_scaling_is_told_from_its_factors(factor: float) -> None:
    factors = llama3_factors(factor, 8192, 64)
    assert len(set(factors)) > 4  # kept, stretched, and some between

    rope = rope_parameters("llama", {"llama.rope.freq_base": 1e5}, 128, {LLAMA3: factors})

    assert (rope["rope_type"], rope["factor"]) == ("llama3", factor)


def test_llama_3_scaling_is_read_from_a_tensor(tmp_path: Path) -> None:
    factors = llama3_factors(8, 8192, HEAD_DIM // 2)
    write_gguf(tmp_path / "tiny.gguf", extra={"rope_freqs.weight": factors})

    with GgufCheckpoint(tmp_path / "tiny.gguf") as checkpoint:
        assert "rope_freqs.weight" not in checkpoint.names()
        assert model_config(checkpoint.config).rope == RopeConfig(
            theta=1e5, scaling="llama3", factor=8, original_length=8192
        )


@pytest.mark.parametrize(
    "factors",
    [
        np.linspace(1, 8, HEAD_DIM // 2, dtype=np.float32),
        llama3_factors(8, 4096, HEAD_DIM // 2),
        np.full(HEAD_DIM // 2, np.nan, np.float32),
    ],
    ids=["a line", "another length", "nan"],
)
def test_other_factors_in_that_tensor_are_refused(
    tmp_path: Path, factors: np.ndarray[Any, Any]
) -> None:
    write_gguf(tmp_path / "tiny.gguf", extra={"rope_freqs.weight": factors})

    with pytest.raises(UnsupportedModelError, match="other factors than Llama 3's"):
        GgufCheckpoint(tmp_path / "tiny.gguf")


YARN = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
LENGTH = {"llama.rope.scaling.original_context_length": 64}


def test_scaling_in_the_metadata_is_spelled_as_config_json_does() -> None:
    linear = rope_parameters("llama", {"llama.rope.scale_linear": 2.5}, 16, {})
    yarn = rope_parameters("llama", YARN | LENGTH, 16, {})

    assert linear == {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
    assert yarn == {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }


def test_longrope_that_is_not_whole_is_refused() -> None:
    both = {f"rope_factors_{kind}.weight": np.ones(8, np.float32) for kind in ("short", "long")}
    for name in both:
        with pytest.raises(CheckpointError, match=f"LongRoPE without {name}"):
            rope_parameters("phi3", {}, 16, {key: it for key, it in both.items() if key != name})
    with pytest.raises(CheckpointError, match="without rope.scaling.original_context_length"):
        rope_parameters("phi3", {}, 16, both)


def test_a_gain_without_longrope_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="attn_factor 1.5"):
        rope_parameters("phi3", {"phi3.rope.scaling.attn_factor": 1.5}, 16, {})


def test_yarn_that_is_not_whole_or_says_more_is_refused() -> None:
    with pytest.raises(CheckpointError, match="YaRN without"):
        rope_parameters("llama", YARN, 16, {})
    more = {"llama.rope.scaling.yarn_log_multiplier": 0.1}
    with pytest.raises(UnsupportedModelError, match="yarn_log_multiplier"):
        rope_parameters("llama", YARN | LENGTH | more, 16, {})


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", architecture="phi2")
    with (
        GgufCheckpoint(tmp_path / "tiny.gguf") as checkpoint,
        pytest.raises(UnsupportedModelError, match="phi2"),
    ):
        model_config(checkpoint.config)


def test_a_type_that_cannot_be_read_is_refused_when_the_file_is_opened(tmp_path: Path) -> None:
    path, name = tmp_path / "tiny.gguf", b"blk.0.ffn_up.weight"
    write_gguf(path)
    stored = bytearray(path.read_bytes())
    kind = stored.index(name) + len(name) + 4 + 2 * 8  # behind the number of dimensions, and both
    stored[kind : kind + 4] = int(Kind.I8).to_bytes(4, "little")
    path.write_bytes(stored)

    with pytest.raises(UnsupportedModelError, match=r"ffn_up.weight' is stored as I8"):
        GgufCheckpoint(path)


def test_qwen2_keeps_its_architecture(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", architecture="qwen2")

    with GgufCheckpoint(tmp_path / "tiny.gguf") as checkpoint:
        assert model_config(checkpoint.config).model_type == "qwen2"


def test_a_tokenizer_of_nonsense_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre-tokenizer \[\] is not supported"):
        tokenizer_json({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": []})
    with pytest.raises(CheckpointError, match=r"eot_token_id is \['a'\]; expected token ids"):
        generation_config({"tokenizer.ggml.eot_token_id": ["a"]})


@pytest.mark.parametrize(
    ("pre", "said", "begins"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("smollm", None, False)],
)
def test_llama_3_begins_with_bos_unless_the_file_says_no(
    pre: str, said: bool | None, begins: bool
) -> None:
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": ["<s>", "a", "b", "ab"],
        "tokenizer.ggml.token_type": [3, 1, 1, 1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
    }
    if said is not None:
        metadata["tokenizer.ggml.add_bos_token"] = said

    assert (tokenizer_json(metadata)["post_processor"] is not None) == begins
    with pytest.raises(CheckpointError, match="add_bos_token of the GGUF metadata is 'false'"):
        tokenizer_json(metadata | {"tokenizer.ggml.add_bos_token": "false"})


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    with (
        GgufCheckpoint(tmp_path / "tiny.gguf") as checkpoint,
        pytest.raises(CheckpointError, match=r"model\.nothing"),
    ):
        checkpoint.read("model.nothing")


def test_rows_with_a_step_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    with GgufCheckpoint(tmp_path / "tiny.gguf") as checkpoint, pytest.raises(ValueError):
        checkpoint.read(UP, slice(0, 8, 2))


def test_a_closed_checkpoint_says_so_and_closes_again(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    checkpoint = GgufCheckpoint(tmp_path / "tiny.gguf")
    checkpoint.close()
    checkpoint.close()

    with pytest.raises(CheckpointError, match="closed"):
        checkpoint.read(UP)


def test_source_licence_and_revision_describe_the_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    write_gguf(tmp_path / "other.gguf", Kind.Q8_0)
    with (
        open_checkpoint(tmp_path / "tiny.gguf") as checkpoint,
        GgufCheckpoint(tmp_path / "other.gguf") as other,
    ):
        assert checkpoint.source == "tiny.gguf"
        assert checkpoint.licence == "mit"
        assert checkpoint.revision != other.revision


def test_other_weights_under_the_same_header_are_another_revision(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    with GgufCheckpoint(path) as checkpoint:
        before = checkpoint.revision
        norm = checkpoint.read("model.norm.weight").tobytes()
    content = path.read_bytes()
    assert content.count(norm) == 1
    path.write_bytes(content.replace(norm, bytes(len(norm))))

    with GgufCheckpoint(path) as checkpoint:
        assert checkpoint.revision != before


def test_one_weight_under_two_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, extra={"model.norm.weight": np.ones(HIDDEN, np.float32)})

    with pytest.raises(CheckpointError, match=r"holds 'model.norm.weight' twice"):
        GgufCheckpoint(path)


@pytest.mark.parametrize(
    ("said", "factor"), [({}, 4.0), ({"llama.rope.scaling.type": "none"}, None)], ids=str
)
def test_a_factor_without_a_type_scales_linearly(
    said: dict[str, object], factor: float | None
) -> None:
    rope = rope_parameters("llama", {"llama.rope.scaling.factor": 4.0} | said, 16, {})

    assert rope.get("factor") == factor
    assert rope["rope_type"] == ("default" if factor is None else "linear")


# sha256 of float32 rows that gguf's own reader gives; the query's un-permuted by reshaping.
QUERY_SHA256 = "2f39f8002e96772faadb7667719e615167fe314589ce699ce97a007e33f2f298"
DOWN_SHA256 = "f78321d5c43ff9638bff1e52d252e30797543f7525a1d73aa62e0a94a5141720"
EMBEDDING_SHA256 = "90313e00dfa6b040ef417a48864ff4c7f7535014ab17229b164100e9002ee5f1"


@pytest.mark.model
def test_the_embedded_model_reads_as_the_library_reads_it(embedded_gguf: Path) -> None:
    with GgufCheckpoint(embedded_gguf) as checkpoint:
        config = model_config(checkpoint.config)
        assert (config.num_layers, config.hidden_size, config.vocab_size) == (30, 576, 49152)
        assert (config.rope.theta, config.tie_word_embeddings) == (100000.0, True)

        def digest(name: str, rows: slice | None = None) -> str:
            return hashlib.sha256(np.ascontiguousarray(checkpoint.read(name, rows))).hexdigest()

        prefix = "model.layers.29"
        assert digest(f"{prefix}.self_attn.q_proj.weight") == QUERY_SHA256
        assert digest(f"{prefix}.mlp.down_proj.weight", slice(100, 103)) == DOWN_SHA256
        assert digest("model.embed_tokens.weight", slice(49147, None)) == EMBEDDING_SHA256
