"""What loader and explorer say, in English and Chinese."""

from __future__ import annotations

from typing import Final

__all__ = ["EXPLORER", "LOADER"]

LOADER: Final[dict[str, tuple[str, str]]] = {
    "loader.title": ("Load a model", "加载模型"),
    "loader.model": ("Model", "模型"),
    "loader.weights": ("Weights", "权重"),
    "loader.kv_cache_dtype": ("Keys and values", "键值"),
    "loader.load": ("Load", "加载"),
    "loader.fits": ("It fits into memory.", "内存足够。"),
    "loader.tight": (
        "The weights fit, but not beside a conversation of the whole context: keep it shorter, or "
        "take smaller keys and values.",
        "权重放得下，但放不下整个上下文长度的对话，请缩短上下文，或选更小的键值格式。",
    ),
    "loader.too_large": (
        "It does not fit: take smaller weights or a smaller model.",
        "内存不足，请改用更小的权重格式或更小的模型。",
    ),
    "loader.not_here": (
        "{model} is not on this machine yet; its size is known once it is fetched.",
        "{model} 尚未下载到本机，下载后才能得知大小。",
    ),
    "loader.parameters": ("parameters", "参数"),
    "loader.weight_bytes": ("weights as {scheme}", "权重（{scheme}）"),
    "loader.kv_bytes": (
        "KV cache for {tokens} tokens, {kind}",
        "{tokens} 个词元的 KV 缓存（{kind}）",
    ),
    "loader.free": ("free memory", "空闲内存"),
    "loader.at_most": ("tokens/s at most, by bandwidth", "词元/秒上限（按带宽）"),
    "loader.legend": (
        "Of the free memory: blue the weights, orange the KV cache of one whole conversation.",
        "空闲内存中：蓝色为权重，橙色为一个完整对话的 KV 缓存。",
    ),
    "loader.loading": ("loading {model} …", "正在加载 {model}……"),
    "loader.converting": ("converting", "转换"),
    "loader.loaded": ("Loaded: {llm}", "已加载：{llm}"),
    "loader.failed": ("Not loaded: {message}", "加载失败：{message}"),
}

EXPLORER: Final[dict[str, tuple[str, str]]] = {
    "explorer.title": ("What quantising costs", "量化的代价"),
    "explorer.intro": (
        "Error of each matrix in {bits} bits, group size {group}: |W − Q(W)| / |W|, "
        "root mean squares of {rows} rows.",
        "各矩阵以 {bits} 位（组大小 {group}）量化的误差：|W − Q(W)| / |W|，取 {rows} 行的均方根。",
    ),
    "explorer.range": (
        "Blue {low:.3%} to orange {high:.3%}. The worst is {worst}.",
        "蓝色 {low:.3%}，橙色 {high:.3%}。误差最大的是 {worst}。",
    ),
    "explorer.stored": (
        "The weights are stored as {kinds}: what was lost before is not in these figures.",
        "权重以 {kinds} 存储，此前已有的损失不计入这些数字。",
    ),
    "explorer.bits": ("{bits} bits", "{bits} 位"),
    "explorer.layer": ("Layer", "层"),
    "explorer.kind": ("Matrix", "矩阵"),
    "explorer.group": ("Group size", "组大小"),
    "explorer.weights": ("Weights of {name}", "{name} 的权重分布"),
    "explorer.errors": ("Errors W − Q(W)", "误差 W − Q(W)"),
    "explorer.steps": (
        "median step {step:.2e} · range {low:.3g} to {high:.3g} · "
        "heights are square roots, so that the tails show",
        "量化步长中位数 {step:.2e} · 取值范围 {low:.3g} 至 {high:.3g} · "
        "高度为计数的平方根，以便看清尾部",
    ),
    "explorer.sizes": ("What the group size does to {name}", "组大小对 {name} 的影响"),
    "explorer.error_head": ("error", "误差"),
    "explorer.bits_head": ("bits a weight", "每权重比特"),
    "explorer.step_head": ("median step", "步长中位数"),
    "explorer.size_head": ("of bf16", "相对 bf16"),
}
