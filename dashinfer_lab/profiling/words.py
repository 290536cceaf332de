"""What a profile says to a person, in English and Chinese; names of operators stay as they are."""

from __future__ import annotations

from typing import Final

from dashinfer_lab.config import Language, default_language

__all__ = ["WORDS", "say", "spoken"]

WORDS: Final[dict[str, tuple[str, str]]] = {
    "prefill": ("prefill", "预填充"),
    "decode": ("decode", "解码"),
    "queue": ("queue", "排队"),
    "phase": (
        "{phase}: {steps} steps, {tokens} tokens, {ms:.2f} ms, {rate:.1f} tokens/s, "
        "{coverage:.1%} accounted for",
        "{phase}：{steps} 步，{tokens} 个词元，{ms:.2f} ms，{rate:.1f} 词元/秒，"
        "{coverage:.1%} 的时间已归因",
    ),
    "phase_of_one_step": (
        "{phase}: {steps} step, {tokens} tokens, {ms:.2f} ms, {rate:.1f} tokens/s, "
        "{coverage:.1%} accounted for",
        "{phase}：{steps} 步，{tokens} 个词元，{ms:.2f} ms，{rate:.1f} 词元/秒，"
        "{coverage:.1%} 的时间已归因",
    ),
    "threads": ("{count} threads", "{count} 个线程"),
    "one_thread": ("1 thread", "1 个线程"),
    "machine": ("{model}, {scheme}, {isa}, {threads}", "{model}，{scheme}，{isa}，{threads}"),
    "nothing": ("no step was profiled", "没有记录到任何步骤"),
    "roof": (
        "roof of this machine: {bandwidth:.1f} GB/s read, {peak:.0f} GFLOP/s of fp32 multiply-adds "
        "({isa}, threads: {threads}), measured after the run",
        "本机上限：读带宽 {bandwidth:.1f} GB/s，fp32 乘加 {peak:.0f} GFLOP/s"
        "（{isa}，线程数 {threads}），运行结束后实测",
    ),
    "no_roof": ("the machine's roof was not measured", "未测量本机上限"),
    "whole": ("{phase} as a whole", "{phase}合计"),
    "operators": ("operators", "算子"),
    "operator": ("operator", "算子"),
    "layer": ("layer", "层"),
    "layers": ("layers", "各层"),
    "outside": ("outside", "层外"),
    "calls": ("calls", "次数"),
    "time": ("time", "时间"),
    "time_ms": ("time (ms)", "时间（ms）"),
    "share": ("share", "占比"),
    "of_roof": ("of the roof", "达到上限"),
    "bound": ("bound by", "受限于"),
    "memory": ("memory", "内存"),
    "compute": ("compute", "计算"),
    "bound.memory": ("memory", "内存带宽"),
    "bound.compute": ("arithmetic", "计算能力"),
    "most": ("{opname} takes {share:.0%} of the time.", "{opname} 占 {share:.0%} 的时间。"),
    "limit.memory": (
        "Memory sets the pace: {amount:.1f} MB a step, at {rate:.1f} of {limit:.1f} GB/s. {most}",
        "瓶颈在内存：每步 {amount:.1f} MB，达到 {rate:.1f} / {limit:.1f} GB/s。{most}",
    ),
    "limit.compute": (
        "Arithmetic sets the pace: {amount:.2f} GFLOP a step, at {rate:.0f} of {limit:.0f} "
        "GFLOP/s. {most}",
        "瓶颈在计算：每步 {amount:.2f} GFLOP，达到 {rate:.0f} / {limit:.0f} GFLOP/s。{most}",
    ),
    "limit.far": (
        "Far from this machine's limit: {bound} would allow {least_ms:.2f} ms a step, it takes "
        "{ms:.2f} ms. {most} What it takes beyond the limit are waits between workers, other "
        "programs on these cores, or operators too small to share out.",
        "远未达到本机上限：按{bound}每步只需 {least_ms:.2f} ms，实际 {ms:.2f} ms。{most}"
        "超出的时间是线程间等待、本机其他程序的占用，或过小而无法分摊的算子。",
    ),
    "requests": ("requests", "请求"),
    "request": ("request {number}", "请求 {number}"),
    "request_head": ("request", "请求"),
    "chunks": ("chunks", "块"),
    "tokens": ("tokens", "词元"),
    "weights": ("weights", "权重"),
    "kv": ("KV pages", "KV 页"),
    "arena": ("arena", "激活区"),
    "workspaces": ("workspaces", "工作区"),
    "step": ("step arrays", "步骤数组"),
    "uncounted": (
        "bytes and operations of {kernels} are not known",
        "{kernels} 的字节数与运算量未知",
    ),
    "dropped": ("{count} earlier steps were not kept", "更早的 {count} 步未保留"),
    "convention": (
        "Bytes: weights used, keys and values attended to, rows in and out, each once a step. "
        "A share above 100 %: rows stayed in a cache, or u8 weights were multiplied as integers.",
        "字节数：用到的权重、参与注意力的键值、输入输出行，每步各计一次。"
        "超过 100 % 说明激活行留在缓存中，或 u8 权重以整数相乘。",
    ),
    "roofline": ("Roofline", "屋顶线"),
    "intensity": ("operations per byte", "每字节运算数"),
    "gflops_axis": ("GFLOP/s", "GFLOP/s"),
    "bandwidth_roof": ("read {bandwidth:.1f} GB/s", "读带宽 {bandwidth:.1f} GB/s"),
    "compute_roof": ("fp32 FMA {peak:.0f} GFLOP/s", "fp32 乘加 {peak:.0f} GFLOP/s"),
    "where_time_goes": ("Where the time goes", "时间花在哪里"),
    "share_axis": ("share of the time, %", "时间占比，%"),
    "others": ("others", "其他"),
    "timeline": ("One step, operation by operation", "单个步骤的算子时间线"),
    "median_step": ("{phase}, a median step: {ms:.2f} ms", "{phase}，中位步骤：{ms:.2f} ms"),
    "ms_axis": ("ms", "ms"),
    "requests_title": ("Requests", "请求时间线"),
    "seconds_axis": ("seconds", "秒"),
    "memory_title": ("Memory", "内存分布"),
    "mb_axis": ("MB", "MB"),
    "layer_weights": ("weights of each layer", "各层权重"),
    "pages_title": (
        "KV pages in use at most: {used} of {total}, {tokens} tokens each",
        "KV 页最多使用 {used} / {total}，每页 {tokens} 个词元",
    ),
    "arena_title": (
        "arena: {buffers:.1f} MB of buffers share {arena:.1f} MB",
        "激活区：{buffers:.1f} MB 的缓冲区共用 {arena:.1f} MB",
    ),
    "operation_axis": ("operation of the program", "程序中的操作序号"),
    "comparison": ("{before} → {after}", "{before} → {after}"),
    "before": ("before", "之前"),
    "after": ("after", "之后"),
    "change": ("change", "变化"),
    "speedup": ("speed-up", "加速比"),
    "total": ("total", "合计"),
    "per_token": ("milliseconds a token", "每词元毫秒"),
    "caption.roofline": (
        "Each point is an operator; the nearer below the slope, the better memory is used; below "
        "the flat line, arithmetic.",
        "每个点是一个算子：横轴为每字节运算数，纵轴为实际 GFLOP/s，斜线为读带宽上限，"
        "水平线为 fp32 乘加上限。",
    ),
    "caption.operators": (
        "Share of the time of each phase by operator.",
        "预填充与解码阶段各算子的时间占比。",
    ),
    "caption.timeline": (
        "Operations of a median step in order, coloured by operator.",
        "中位步骤中的各操作，按执行顺序排列，颜色表示算子。",
    ),
    "caption.requests": (
        "Grey: in the queue. Blue: chunks of the prompt. Orange: decoding.",
        "灰色为排队，蓝色为提示词分块预填充，橙色为解码。",
    ),
    "caption.memory": (
        "What the model holds, which pages were used, and how the arena is shared over a step.",
        "模型占用的内存、使用过的 KV 页，以及激活区在一步中的复用情况。",
    ),
    "caption.comparison": (
        "Time a token by operator, before and after.",
        "各算子每词元耗时，之前与之后对比。",
    ),
    "title": ("Profile of {model}", "{model} 的性能剖析"),
}
"""English and Chinese by key, with the same placeholders."""


def spoken(lang: Language | None) -> Language:
    """`lang`, or the locale's language."""
    return default_language() if lang is None else lang


def say(lang: Language, key: str, **values: object) -> str:
    """The words of `key` with its placeholders filled. An unknown key is a `KeyError`."""
    english, chinese = WORDS[key]
    return (chinese if lang == "zh" else english).format(**values)
