"""What `weights="auto"` takes, and why: memory, bytes a token reads, and tokens a second.

`choose_weights` is arithmetic; the rest reads a checkpoint's size and a bandwidth measured before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from dashinfer_lab.config import Language, cache_root
from dashinfer_lab.engine.weights_words import say
from dashinfer_lab.free_memory import available_bytes
from dashinfer_lab.hub.files import write_json
from dashinfer_lab.quantize import Scheme
from jit_kernels.isa import detect
from jit_kernels.panels import PANEL_WIDTH
from jit_kernels.runtime.topology import thread_plan

if TYPE_CHECKING:
    from dashinfer_lab.config import ExpertConfig
    from dashinfer_lab.convert import Artifact
    from dashinfer_lab.hub import Checkpoint

__all__ = [
    "WeightsChoice",
    "auto_scheme",
    "choice_for",
    "choose_weights",
    "explain",
    "explain_briefly",
    "keep_bandwidth",
    "kept_bandwidth",
    "rule",
]

# Codes of one byte, and a scale and a minimum of two bytes for 64 or 32 of them.
_BYTES: Final = {"fp32": 4.0, "a16w8": 1 + 4 / 64, "a16w8:32": 1 + 4 / 32}
_COARSE: Final = {"a8w8": 7, "a8w4": 8}  # bits of activations
# GGUF's formats of which 32 weights share a scale: finer groups could keep no more of them.
_BLOCKS_OF_32: Final = (
    "Q8_0", "Q8_1", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "IQ4_NL", "MXFP4", "Q4_K", "Q5_K",
)  # fmt: skip
_TINY_PARAMETERS: Final = 4_000_000  # 16 MB in fp32 lie in a processor's cache
_UNNOTICED_SECONDS: Final = 2e-4  # about what a step takes beside reading weights
_MOST_BYTES_PER_PARAMETER: Final = 8  # fp32 takes 4; a small GGUF file is half vocabulary
_MOST_SPARED: Final = 64  # a mixture of experts reads more than one parameter of so many
_EXPERTS: Final = ".experts."  # part of the name of every tensor that only some tokens meet
_WEIGHT_FILES: Final = (".safetensors", ".gguf")


@dataclass(frozen=True, slots=True)
class WeightsChoice:
    """A scheme, and why it was chosen: `why` in a clause, `reason` in a sentence or two."""

    scheme: str
    why: str
    reason: str


def choose_weights(
    num_parameters: int,
    available_bytes: int,
    bandwidth_gbs: float | None = None,
    *,
    num_met: int | None = None,
    stored_as: Sequence[str] = (),
    language: Language = "en",
) -> WeightsChoice:
    """Choose a16w8, or fp32 where that fits and is as fast as far as anybody can tell.

    available_bytes: memory that is free.  bandwidth_gbs: 1e9 bytes a second that can be read;
    None where it was never measured: then only tiny models stay in fp32.  num_met: parameters that
    a token meets, if a mixture of experts spares it some.  stored_as: element types of the
    checkpoint, most bytes first; of one quantised in blocks of 32, these blocks are kept as groups.
    """
    quantised = "a16w8:32" if stored_as and stored_as[0] in _BLOCKS_OF_32 else "a16w8"
    needed = {scheme: size * num_parameters for scheme, size in _BYTES.items()}
    met = num_parameters if num_met is None else num_met
    saved = (_BYTES["fp32"] - _BYTES[quantised]) * met
    is_tiny = num_parameters <= _TINY_PARAMETERS
    unnoticed = bandwidth_gbs is not None and saved <= _UNNOTICED_SECONDS * bandwidth_gbs * 1e9
    exact = (is_tiny or unnoticed) and needed["fp32"] <= available_bytes
    scheme = "fp32" if exact else quantised
    if exact:
        why = say("tiny" if is_tiny else "unnoticed", language)
    elif needed[quantised] > available_bytes:
        why = say("slow", language)
    else:
        why = say("fewer", language, times=needed["fp32"] / needed[quantised])
    longer = say("blocks", language, why=why) if scheme == "a16w8:32" else why
    read, free = _BYTES[scheme] * met, available_bytes / 1e6
    figures = say("figures", language, needed=read / 1e6, free=free)
    if met < num_parameters:
        figures = say("experts", language, whole=needed[scheme] / 1e6, figures=figures)
    speed = _speed(read, bandwidth_gbs, language)
    reason = say("whole", language, scheme=scheme, why=longer, figures=figures, speed=speed)
    return WeightsChoice(scheme, why, reason)


def _speed(bytes_per_token: float, bandwidth_gbs: float | None, language: Language) -> str:
    if bandwidth_gbs is None:
        return say("unmeasured", language)
    rate = bandwidth_gbs * 1e9 / max(1.0, bytes_per_token)
    return say("speed", language, bandwidth=bandwidth_gbs, rate=rate)


def auto_scheme(source: Path, threads: int | None = None) -> str:
    """Return the scheme for the checkpoint at `source`; large safetensors are not even opened.

    Raises CheckpointError for files that cannot be read.
    """
    files = source.iterdir() if source.is_dir() else [source]
    file_bytes = sum(path.stat().st_size for path in files if path.suffix in _WEIGHT_FILES)
    available = available_bytes()
    bandwidth = kept_bandwidth(detect().name, thread_plan(threads).threads)
    fewest = file_bytes // _MOST_BYTES_PER_PARAMETER
    is_gguf = source.suffix == ".gguf"
    of_fewest = choose_weights(fewest, available, bandwidth, num_met=fewest // _MOST_SPARED)
    if not is_gguf and of_fewest.scheme == "a16w8":
        return "a16w8"
    from dashinfer_lab.hub import open_checkpoint

    with closing(open_checkpoint(source)) as checkpoint:
        return choice_for(checkpoint, threads).scheme


def choice_for(
    checkpoint: Checkpoint, threads: int | None = None, language: Language = "en"
) -> WeightsChoice:
    """Choose for all that `checkpoint` holds, with this machine's memory and kept bandwidth."""
    from dashinfer_lab.hub import model_config

    counts = {name: prod(checkpoint.info(name).shape) for name in checkpoint.names()}
    bandwidth = kept_bandwidth(detect().name, thread_plan(threads).threads)
    return choose_weights(
        sum(counts.values()),
        available_bytes(),
        bandwidth,
        num_met=_met(counts, model_config(checkpoint.config).experts),
        stored_as=list(checkpoint.stored_bytes()),
        language=language,
    )


def rule(threads: int | None = None, language: Language = "en") -> str:
    """Say in a sentence what "auto" takes on this machine, for models that fit."""
    bandwidth = kept_bandwidth(detect().name, thread_plan(threads).threads)
    bytes_saved = _BYTES["fp32"] - _BYTES["a16w8"]
    unnoticed = _UNNOTICED_SECONDS * (bandwidth or 0) * 1e9 / bytes_saved
    most = max(_TINY_PARAMETERS, unnoticed) / 1e6
    measured = say("measured" if bandwidth else "none_measured", language, bandwidth=bandwidth)
    return say("rule", language, millions=most, measured=measured)


def explain(
    artifact: Artifact, asked: str, isa: str, threads: int, language: Language = "en"
) -> str:
    """Say why a model that was loaded with `weights=asked` has the scheme it has."""
    scheme = artifact.metadata["scheme"]
    if asked != "auto":
        why = say("asked", language, scheme=scheme)
        bits = _COARSE.get(scheme.partition(":")[0])
        return why if bits is None else say("coarse", language, why=why, bits=bits)
    choice = _choice_now(artifact, isa, threads, language)
    if Scheme.parse(choice.scheme) == Scheme.read(scheme):
        return choice.reason
    return say("otherwise", language, scheme=scheme, reason=choice.reason)


def explain_briefly(artifact: Artifact, isa: str, threads: int, language: Language = "en") -> str:
    """Say in a clause why a model that was loaded with "auto" has the scheme it has."""
    scheme = artifact.metadata["scheme"]
    choice = _choice_now(artifact, isa, threads, language)
    if Scheme.parse(choice.scheme) == Scheme.read(scheme):
        return say("brief", language, scheme=choice.scheme, why=choice.why)
    return say("converted", language, scheme=scheme)


def _choice_now(artifact: Artifact, isa: str, threads: int, language: Language) -> WeightsChoice:
    """Choose for what `artifact` was made from, with this machine's memory and bandwidth."""
    counts = _parameters(artifact)
    return choose_weights(
        sum(counts.values()),
        available_bytes(),
        kept_bandwidth(isa, threads),
        num_met=_met(counts, artifact.config.experts),
        stored_as=artifact.metadata.get("stored_as", "").split(),
        language=language,
    )


def _parameters(artifact: Artifact) -> dict[str, int]:
    """Return how many parameters each tensor holds; a byte of 4-bit weights holds two."""
    is_packed = Scheme.read(artifact.metadata["scheme"]).weights == "u4"
    head_panels = -(-artifact.config.vocab_size // PANEL_WIDTH)
    counts: dict[str, int] = {}
    for name, tensor in artifact.tensors.items():
        if not name.endswith((".scale", ".minimum")):
            # The head, which has a row a token, is of 8 bits.
            two = is_packed and tensor.dtype == "U8" and tensor.shape[0] != head_panels
            counts[name] = prod(tensor.shape) * (2 if two else 1)
    return counts


def _met(counts: Mapping[str, int], experts: ExpertConfig | None) -> int:
    """Return how many of the parameters, given by tensor, a token meets."""
    of_experts = sum(count for name, count in counts.items() if _EXPERTS in name)
    spared = of_experts * (experts.count - experts.per_token) // experts.count if experts else 0
    return sum(counts.values()) - spared


def _roof_file() -> Path:
    return cache_root() / "roof.json"


def kept_bandwidth(isa: str, threads: int) -> float | None:
    """Return the GB a second that were measured for `isa` and `threads`, if they ever were."""
    value = _kept(_roof_file()).get(_key(isa, threads))
    return float(value) if isinstance(value, int | float) and value > 0 else None


def keep_bandwidth(isa: str, threads: int, bandwidth_gbs: float) -> None:
    """Keep a measured bandwidth in the cache; where that cannot be written, it is forgotten."""
    known = {**_kept(_roof_file()), _key(isa, threads): round(bandwidth_gbs, 3)}
    with suppress(OSError):
        write_json(_roof_file(), known)


def _key(isa: str, threads: int) -> str:
    return f"{isa}, {threads} threads"


def _kept(path: Path) -> dict[str, object]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent, or damaged: measured anew by the next benchmark
        return {}
    return cast("dict[str, object]", known) if isinstance(known, dict) else {}
