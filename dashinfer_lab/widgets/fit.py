"""Whether a model fits into memory, and how fast it may be, before it is fetched; loads none."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from dashinfer_lab.free_memory import available_bytes
from dashinfer_lab.widgets.bandwidth import read_bandwidth

if TYPE_CHECKING:
    from dashinfer_lab.config import ModelConfig

__all__ = ["Fit", "Verdict", "fit_of"]

Verdict = Literal["fits", "tight", "too_large"]
_SCALE_BYTES: Final = 2  # of a scale or a minimum; float32 where float16 is too coarse
_SPARE_BYTES: Final = 300 << 20  # Python, buffers of a step, compiled kernels


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes a model needs under a scheme, and what is free now.

    kv_bytes: keys and values of one conversation of the whole context, in pages of `kv_format`;
    of "auto" as it takes them where they fit.  bytes_per_token: weights that decoding a token
    reads.  tokens_per_second: the most that measured bandwidth allows; None where there was too
    little memory to measure it.
    """

    scheme: str
    num_parameters: int
    weight_bytes: int
    bytes_per_token: int
    kv_bytes: int
    kv_format: str
    context_length: int
    available_bytes: int
    tokens_per_second: float | None

    @property
    def verdict(self) -> Verdict:
        """Tight: the weights fit, but not beside a conversation of the whole context."""
        if self.weight_bytes + _SPARE_BYTES > self.available_bytes:
            return "too_large"
        whole = self.weight_bytes + self.kv_bytes + _SPARE_BYTES
        return "fits" if whole <= self.available_bytes else "tight"


def fit_of(
    path: Path, weights: str = "auto", threads: int | None = None, kv_cache_dtype: str = "auto"
) -> Fit:
    """Say what the model at `path` needs. Raises the errors of checkpoints and schemes."""
    from dashinfer_lab.convert import Artifact, is_artifact
    from dashinfer_lab.engine.auto_weights import auto_scheme
    from dashinfer_lab.hub import model_config, open_checkpoint

    if is_artifact(path):
        artifact = Artifact.open(path)
        return _fit(artifact.config, artifact.metadata["scheme"], threads, kv_cache_dtype)
    with closing(open_checkpoint(path)) as checkpoint:
        config = model_config(checkpoint.config)
    scheme = auto_scheme(path, threads) if weights == "auto" else weights
    return _fit(config, scheme, threads, kv_cache_dtype)


def _fit(config: ModelConfig, scheme: str, threads: int | None, kv_cache_dtype: str) -> Fit:
    from dashinfer_lab.engine.auto_kv import kv_page_bytes, require_kv_dtype, usual_kv_format
    from dashinfer_lab.quantize import Scheme
    from jit_kernels.kv_layout import PAGE_SIZE
    from jit_kernels.runtime.topology import thread_plan

    require_kv_dtype(kv_cache_dtype)
    count, whole, per_token = _weights(config, scheme)
    free = available_bytes()
    bandwidth = read_bandwidth(thread_plan(threads).threads, free)
    usual = usual_kv_format(config, Scheme.read(scheme).weights)
    kv_format = usual if kv_cache_dtype == "auto" else kv_cache_dtype
    return Fit(
        scheme=scheme,
        num_parameters=count,
        weight_bytes=whole,
        bytes_per_token=per_token,
        kv_bytes=-(-config.context_length // PAGE_SIZE) * kv_page_bytes(config, kv_format),
        kv_format=kv_format,
        context_length=config.context_length,
        available_bytes=free,
        tokens_per_second=bandwidth * 1e9 / per_token if bandwidth else None,
    )


@lru_cache(maxsize=32)
def _weights(config: ModelConfig, scheme: str) -> tuple[int, int, int]:
    """Parameters, bytes of all weights, and of those that decoding a token reads."""
    from dashinfer_lab.models import build_graph
    from dashinfer_lab.quantize import ELEMENT_BYTES, Scheme

    graph = build_graph(config, Scheme.read(scheme))
    count = 0
    whole = unread = sum(table.nbytes for table in graph.tables.values())
    for weight in graph.weights:
        panels, *groups = weight.stored_shapes().values()
        scales = sum(prod(shape) for shape in groups) * _SCALE_BYTES
        size = prod(panels) * ELEMENT_BYTES[weight.format] + scales
        count, whole = count + weight.num_elements, whole + size
        if weight.role == "embedding":
            unread += size
        elif weight.experts and config.experts:
            unread += size * (config.experts.count - config.experts.per_token) // weight.shape[0]
    return count, whole, whole - unread
