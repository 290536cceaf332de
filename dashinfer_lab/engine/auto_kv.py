"""What `kv_cache_dtype="auto"` takes, and why: by what weights are rounded to, and by memory.

Beside weights of 8 or 4 bits keys and values are int8: they are rounded less than the weights, take
a third of the memory, and attention, which reads them for every token, takes less time. Beside
others they are kept in the most exact format in which they fit. Reads no file, measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.quantize import GROUPED_BITS, WeightFormat
from jit_kernels.kv_layout import KV_FORMATS, PAGE_SIZE, KvFormat, block_bytes

if TYPE_CHECKING:
    from dashinfer_lab.config import ModelConfig

__all__ = [
    "KV_CACHE_DTYPES",
    "KvChoice",
    "choose_kv_format",
    "kv_page_bytes",
    "require_kv_dtype",
    "usual_kv_format",
]

KV_CACHE_DTYPES: Final = ("auto", *KV_FORMATS)

_WORDS: Final[dict[str, tuple[str, str]]] = {
    "asked": (
        "{kept}: it was asked for; {tokens} tokens take {size:.0f} MB",
        "{kept}：按您的要求；{tokens} 个词元占 {size:.0f} MB",
    ),
    "brief": (
        "{kept}: {size:.0f} MB for {tokens} tokens",
        "{kept}：{tokens} 个词元占 {size:.0f} MB",
    ),
    "fits": (
        "{kept}: keys and values as computed; {tokens} tokens take {size:.0f} MB of the "
        "{room:.0f} MB they may have",
        "{kept}：键和值按计算结果保存；{tokens} 个词元占 {size:.0f} MB，可用 {room:.0f} MB",
    ),
    "coarser": (
        "{kept}: weights are rounded more than keys and values so; {tokens} tokens take "
        "{size:.0f} MB of the {room:.0f} MB they may have",
        "{kept}：权重的舍入比这更粗；{tokens} 个词元占 {size:.0f} MB，可用 {room:.0f} MB",
    ),
    "rounded": (
        "{kept}: {tokens} tokens would take {exact:.0f} MB in fp32, and may have {room:.0f} MB; "
        "so they take {size:.0f} MB, and logits move a little",
        "{kept}：{tokens} 个词元用 fp32 需 {exact:.0f} MB，可用仅 {room:.0f} MB；"
        "如此占 {size:.0f} MB，对数几率略有变化",
    ),
    "short": (
        "{kept}: the smallest; {tokens} tokens would take {size:.0f} MB, and may have {room:.0f} "
        "MB, so fewer are kept",
        "{kept}：已是最小的格式；{tokens} 个词元需 {size:.0f} MB，"
        "可用 {room:.0f} MB，因此少保留一些",
    ),
    "coarser_given": (
        "{kept}: weights are rounded more than keys and values so; the {room:.0f} MB given hold "
        "{held:.0f} tokens",
        "{kept}：权重的舍入比这更粗；所给的 {room:.0f} MB 可保存 {held:.0f} 个词元",
    ),
    "given": (
        "{kept}: keys and values as computed; the {room:.0f} MB given hold {held:.0f} tokens",
        "{kept}：键和值按计算结果保存；所给的 {room:.0f} MB 可保存 {held:.0f} 个词元",
    ),
}


@dataclass(frozen=True, slots=True)
class KvChoice:
    """A format of keys and values, the figures it was chosen by, and why."""

    kv_format: KvFormat
    why: str
    figures: Mapping[str, float]

    def reason(self, language: Language = "en") -> str:
        """Say in a sentence why the format was taken."""
        return self._in_words(self.why, language)

    def brief(self, language: Language = "en") -> str:
        """Say in a clause what is kept; where not all fits as computed, as `reason` does."""
        usual = self.why in ("fits", "coarser")
        return self._in_words("brief" if usual else self.why, language)

    def _in_words(self, key: str, language: Language) -> str:
        english, chinese = _WORDS[key]
        words = chinese if language == "zh" else english
        return words.format(kept=self.kv_format, **self.figures)


def require_kv_dtype(given: object) -> None:
    """Raise ConfigError unless `given` is a format or "auto"."""
    if given not in KV_CACHE_DTYPES:
        raise ConfigError(
            f"kv_cache_dtype={given!r:.80} is not supported; "
            f"it is one of {', '.join(KV_CACHE_DTYPES)}"
        )


def kv_page_bytes(config: ModelConfig, kv_format: str) -> int:
    """Bytes of one page of the cache, all layers."""
    return config.num_layers * config.num_kv_heads * block_bytes(kv_format, config.head_dim)


def usual_kv_format(config: ModelConfig, weights: WeightFormat) -> KvFormat:
    """What "auto" takes beside linear weights of that format where memory does not matter."""
    return "int8" if weights in GROUPED_BITS and _keeps_int8(config) else "fp32"


def choose_kv_format(
    asked: str,
    config: ModelConfig,
    weights: WeightFormat,
    num_tokens: int,
    room_bytes: int,
    *,
    is_given: bool = False,
) -> KvChoice:
    """Take what was `asked`; of "auto", what is usual or, if that is fp32, the first that fits.

    weights: the format of linear weights.
    room_bytes: what pages may have; where it `is_given`, "auto" keeps as many tokens as it holds.
    """
    pages = -(-num_tokens // PAGE_SIZE)
    sizes = {each: pages * kv_page_bytes(config, each) for each in KV_FORMATS}
    possible: list[KvFormat] = [e for e in KV_FORMATS if e != "int8" or _keeps_int8(config)]
    usual = usual_kv_format(config, weights)
    formats = possible[possible.index(usual) :]
    fitting: list[KvFormat] = [each for each in formats if sizes[each] <= room_bytes]
    kept = usual
    if asked != "auto":
        kept, why = cast("KvFormat", asked), "asked"
    elif is_given:
        why = "given" if usual == "fp32" else "coarser_given"
    elif fitting:
        kept = fitting[0]
        why = "rounded" if kept != usual else "fits" if usual == "fp32" else "coarser"
    else:
        kept, why = possible[-1], "short"
    figures = {
        "held": room_bytes // kv_page_bytes(config, kept) * PAGE_SIZE,
        "tokens": num_tokens,
        "size": sizes[kept] / 1e6,
        "exact": sizes["fp32"] / 1e6,
        "room": room_bytes / 1e6,
    }
    return KvChoice(kept, why, figures)


def _keeps_int8(config: ModelConfig) -> bool:
    """Biased keys that turn by a base of their own prompt cannot be kept as int8."""
    return config.num_rotary_stages == 1
