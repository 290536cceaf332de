"""Why weights are in their scheme, in English and Chinese; decides nothing."""

from __future__ import annotations

from typing import Final

from dashinfer_lab.config import Language

__all__ = ["say"]

_WORDS: Final[dict[str, tuple[str, str]]] = {
    "tiny": ("the model is tiny", "模型很小"),
    "unnoticed": ("reading fewer bytes would not be noticed", "少读一些字节也觉察不到"),
    "slow": (
        "the smallest, but larger than free memory: decoding will wait for the disk",
        "已是最小的格式，但仍大于空闲内存：解码将等待磁盘",
    ),
    "fewer": (
        "{times:.1f} times fewer bytes a token than fp32",
        "每个词元读取的字节是 fp32 的 1/{times:.1f}",
    ),
    "blocks": (
        "{why}; groups of 32, the blocks in which the checkpoint is quantised, lose next to "
        "nothing of it",
        "{why}；检查点本身按 32 个一块量化，取同样的分组几乎没有损失",
    ),
    "whole": ("{scheme}: {why}; {figures}; {speed}", "{scheme}：{why}；{figures}；{speed}"),
    "brief": ("{scheme}: {why}", "{scheme}：{why}"),
    "figures": (
        "a token reads about {needed:.0f} MB of weights, {free:.0f} MB of memory are free",
        "每个词元约读取 {needed:.0f} MB 权重，空闲内存 {free:.0f} MB",
    ),
    "experts": (
        "with all experts the weights take about {whole:.0f} MB; {figures}",
        "连同全部专家，权重约占 {whole:.0f} MB；{figures}",
    ),
    "unmeasured": (
        "no bandwidth was measured here yet (dashinfer-lab bench), so speed is not foretold",
        "尚未测量本机带宽（dashinfer-lab bench），无法预估速度",
    ),
    "speed": (
        "at {bandwidth:.1f} GB/s that is at most {rate:.0f} tokens/s",
        "按 {bandwidth:.1f} GB/s 至多 {rate:.0f} 词元/秒",
    ),
    "asked": ("{scheme}: it was asked for", "{scheme}：按您的要求"),
    "coarse": (
        "{why}; activations of {bits} bits change answers, prompts are computed faster",
        "{why}；激活值只有 {bits} 位，会改变回答，但提示词算得更快",
    ),
    "converted": ("{scheme}: the model was converted so", "{scheme}：模型转换时如此"),
    "otherwise": (
        '{scheme}: the model was converted so; "auto" would now take {reason}',
        "{scheme}：模型转换时如此；现在“auto”会选择 {reason}",
    ),
    "rule": (
        "a16w8, in groups of 32 for a GGUF file quantised in blocks of 32; fp32 up to "
        "{millions:.0f} million parameters ({measured})",
        "a16w8，对按 32 个一块量化的 GGUF 文件取 32 个一组；参数不超过 {millions:.0f} 百万时取 fp32"
        "（{measured}）",
    ),
    "measured": ("{bandwidth:.1f} GB/s were measured", "实测带宽 {bandwidth:.1f} GB/s"),
    "none_measured": ("no bandwidth was measured", "尚未测量带宽"),
}


def say(key: str, language: Language, **values: object) -> str:
    """Return the sentence called `key` with its values filled in."""
    english, chinese = _WORDS[key]
    return (chinese if language == "zh" else english).format(**values)
