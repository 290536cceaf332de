"""What kernel viewer and profile dashboard say, in English and Chinese."""

from __future__ import annotations

from typing import Final

__all__ = ["KERNEL", "PROFILE"]

KERNEL: Final[dict[str, tuple[str, str]]] = {
    "kernel.title": ("Kernels", "内核"),
    "kernel.kernel": ("Kernel", "内核"),
    "kernel.view": ("View", "视图"),
    "kernel.source": ("source", "源码"),
    "kernel.ir": ("IR", "IR"),
    "kernel.llvm": ("optimised IR", "优化后的 IR"),
    "kernel.asm": ("assembly", "汇编"),
    "kernel.isa": ("Instruction set", "指令集"),
    "kernel.variant": ("Variant", "特化"),
    "kernel.any": ("default constants", "默认常量"),
    "kernel.lines": ("{count} lines", "{count} 行"),
    "kernel.cut": ("The first {shown} of {count} lines.", "共 {count} 行，显示前 {shown} 行。"),
    "kernel.missing": (
        "{kernel} is specialised by {names}: give the viewer an LLM, or look at the source.",
        "{kernel} 需要常量 {names} 才能特化：请把 LLM 传给查看器，或查看源码。",
    ),
    "kernel.cost": ("Cost of one call: {name}", "一次调用的开销：{name}"),
    "kernel.no_cost": (
        "Give the viewer an LLM or a profile to see what a call costs.",
        "把 LLM 或性能剖析结果传给查看器，即可看到一次调用的开销。",
    ),
    "kernel.case": ("step", "步骤"),
    "kernel.decode": ("decode 1 token at {position}", "解码位置 {position} 的 1 个词元"),
    "kernel.prefill": ("prefill {tokens} tokens", "预填充 {tokens} 个词元"),
    "kernel.weight_bytes": ("weights", "权重"),
    "kernel.kv_bytes": ("keys, values", "键值"),
    "kernel.activation_bytes": ("activations", "激活"),
    "kernel.flops": ("operations", "运算数"),
    "kernel.intensity": ("operations/byte", "运算数/字节"),
    "kernel.measured": (
        "Measured: {calls} calls, {mean:.3f} ms each, {share:.1f} % of {phase}",
        "实测：调用 {calls} 次，平均 {mean:.3f} ms，占{phase}的 {share:.1f} %",
    ),
}

PROFILE: Final[dict[str, tuple[str, str]]] = {
    "profile.title": ("Where the time goes", "时间花在哪里"),
    "profile.run": ("Profile", "开始剖析"),
    "profile.prompt": ("Prompt", "提示词"),
    "profile.tokens": ("Tokens", "词元数"),
    "profile.running": (
        "Running once, then measuring the machine's roof …",
        "正在运行并实测本机上限……",
    ),
    "profile.none": ("Nothing was profiled yet.", "尚未剖析。"),
    "profile.failed": ("Not profiled: {message}", "剖析失败：{message}"),
    "profile.table": ("table", "表格"),
    "profile.operators": ("bars", "柱状图"),
    "profile.roofline": ("roofline", "屋顶线"),
    "profile.timeline": ("timeline", "时间线"),
    "profile.requests": ("requests", "请求"),
    "profile.memory": ("memory", "内存"),
    "profile.comparison": ("compare", "对比"),
    "profile.no_plot": (
        "Pictures need matplotlib and a step: pip install matplotlib.",
        "绘图需要 matplotlib 和至少一步记录：pip install matplotlib。",
    ),
    "profile.no_comparison": (
        "There is one run only: profile again, or give before=.",
        "只有一次运行：请再剖析一次，或传入 before=。",
    ),
    "profile.no_memory": ("The memory was not recorded.", "没有记录内存。"),
    "phase.prefill": ("prefill", "预填充"),
    "phase.decode": ("decode", "解码"),
}
