"""What the commands say, in English and Chinese; knows no command, and prints nothing.

`--json` stays English. In Chinese an error's kind and what to do come before what it says, which is
Chinese where errors often say it (`dashinfer_lab.error_words`).
`help_words` has the help texts, `error_headings` the kinds of errors.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple, cast

from dashinfer_lab.cli.error_headings import ERROR_HEADINGS
from dashinfer_lab.config import Language
from dashinfer_lab.log_words import log_in

__all__ = ["SENTENCES", "Sentence", "choose_language", "error_text", "language", "spoken", "text"]


class Sentence(NamedTuple):
    """One sentence in both languages, with the same placeholders."""

    en: str
    zh: str


_HELP_EN = """\
/system TEXT   set the system prompt; without TEXT, take it away
/clear         forget the conversation; the system prompt stays
/help          show this
/exit          leave; so does Ctrl-D
Ctrl-C stops an answer; what was shown of it stays in the conversation."""
_HELP_ZH = """\
/system 文本   设置系统提示词；不带文本则取消
/clear         清空对话，保留系统提示词
/help          显示本说明
/exit          退出，Ctrl-D 亦可
Ctrl-C 停止当前回答，已显示的部分保留在对话中。"""

_QUICKSTART = {
    "quickstart.fetch": Sentence(
        "[1/3] {model}; the first time, it is fetched ...", "[1/3] {model}；首次使用时下载 ..."
    ),
    "quickstart.local": Sentence("[1/3] On this machine:", "[1/3] 本机已有："),
    "quickstart.embedded": Sentence(
        "SmolLM2-135M-Instruct (Apache-2.0, {size})", "SmolLM2-135M-Instruct（Apache-2.0，{size}）"
    ),
    "quickstart.convert": Sentence(
        "[2/3] To {weights}; the first time, it is converted ...",
        "[2/3] 转换为 {weights}；仅首次需要 ...",
    ),
    "quickstart.converted": Sentence("[2/3] Converted already.", "[2/3] 已是转换后的模型。"),
    "quickstart.load": Sentence(
        "[3/3] Loading; the first time, kernels are compiled for this CPU ...",
        "[3/3] 加载；首次会为本机 CPU 编译内核 ...",
    ),
    "quickstart.machine": Sentence("{isa}, {threads} threads", "{isa}，{threads} 个线程"),
    "quickstart.memory": Sentence(
        "memory {process_mb:.0f} MB, of which weights {weight_mb:.0f} MB",
        "内存 {process_mb:.0f} MB，其中权重 {weight_mb:.0f} MB",
    ),
    "quickstart.next": Sentence("Next:", "接下来："),
    "quickstart.chat": Sentence("a conversation", "对话"),
    "quickstart.run": Sentence("continue a text", "续写文本"),
    "quickstart.profile": Sentence("where the time goes", "时间花在哪里"),
    "quickstart.bench": Sentence("speed against its limit", "速度与其上限"),
    "quickstart.info": Sentence("this CPU, its threads and why", "本机 CPU、线程数及其原因"),
    "quickstart.english": Sentence(
        "The embedded model speaks English only (内置模型仅支持英文).", "内置模型仅支持英文。"
    ),
}

_CHAT = {
    "chat.ready": Sentence(
        "{model} on {isa}, {threads} threads; /help lists the commands, Ctrl-D leaves",
        "{model}，{isa}，{threads} 个线程；/help 列出命令，Ctrl-D 退出",
    ),
    "chat.stated": Sentence(
        "as the model's generation_config.json states: {options}",
        "按模型的 generation_config.json：{options}",
    ),
    "chat.built_in": Sentence(
        "its files hold no chat template: {name}, the family's documented format, is used",
        "模型文件中没有对话模板，采用该系列文档中的格式：{name}",
    ),
    "chat.merged": Sentence(
        "the chat template has no place for a system prompt: it goes before your message",
        "对话模板没有系统提示词的位置，已放在你的消息之前",
    ),
    "chat.help": Sentence(_HELP_EN, _HELP_ZH),
    "chat.cleared": Sentence("the conversation is forgotten", "对话已清空"),
    "chat.system": Sentence("the system prompt is now: {prompt}", "系统提示词已设为：{prompt}"),
    "chat.no_system": Sentence("there is no system prompt now", "已取消系统提示词"),
    "chat.unknown": Sentence(
        "{command} is no command; /help lists them, a space before it sends it as text",
        "没有命令 {command}；/help 列出命令，行首加空格可作为文本发送",
    ),
    "chat.stopped": Sentence("stopped", "已停止"),
    "chat.cut": Sentence(
        "cut at the longest answer; --max-tokens allows a longer one",
        "已达回答长度上限，可用 --max-tokens 放宽",
    ),
    "chat.leave": Sentence(
        "Ctrl-D leaves, and so does Ctrl-C once more", "Ctrl-D 退出，再按一次 Ctrl-C 也会退出"
    ),
}

_DEMO = {
    "demo.ready": Sentence(
        "open {url} in a browser; Ctrl-C ends", "请在浏览器中打开 {url} ；Ctrl-C 结束"
    ),
    "demo.proxy": Sentence(
        "through this notebook's proxy: {url}", "经由当前 Notebook 的代理访问：{url}"
    ),
    "demo.ended": Sentence("ended", "已结束"),
}

_FIGURES = {
    "figures.tokens": Sentence("{count} tokens", "{count} 个词元"),
    "figures.speed": Sentence("{rate:.1f} tokens/s", "{rate:.1f} 词元/秒"),
    "figures.ttft": Sentence("first token after {seconds:.3f} s", "首词元 {seconds:.3f} 秒"),
}

_PROFILE = {"profile.written": Sentence("written: {path}", "已写入：{path}")}

_BENCH = {
    "bench.busy": Sentence(
        "other work runs on this machine (load {load:.1f}): its figures will be too low",
        "本机还有其他负载（load {load:.1f}），测得的数值会偏低",
    ),
    "bench.regression": Sentence(
        "worse than the baseline: {name} was {before:.4g}, is {now:.4g} ({percent:+.0f} %)",
        "劣于基线：{name} 原为 {before:.4g}，现为 {now:.4g}（{percent:+.0f} %）",
    ),
    "bench.no_regression": Sentence(
        "nothing is 20 % worse than the baseline of version {version}",
        "与版本 {version} 的基线相比，没有指标下降 20 %",
    ),
    "bench.kept": Sentence("baseline kept in {path}", "基线已保存：{path}"),
    "bench.decode": Sentence("decode", "解码"),
    "bench.batch": Sentence("decode, {batch} requests", "解码，{batch} 个请求"),
    "bench.prefill": Sentence("prefill", "预填充"),
    "bench.ttft": Sentence("time to first token", "首词元时间"),
    "bench.weights": Sentence("weights", "权重"),
    "bench.bandwidth": Sentence("read bandwidth", "读带宽"),
    "bench.fma": Sentence("FMA peak", "FMA 峰值"),
    "bench.fraction": Sentence("bandwidth used by decode", "解码占用的带宽"),
    "bench.memory": Sentence("peak memory", "内存峰值"),
    "bench.load": Sentence("load", "加载"),
    "bench.machine": Sentence("on", "机器"),
    "bench.speed": Sentence("{rate:.1f} tokens/s", "{rate:.1f} 词元/秒"),
    "bench.total_speed": Sentence("{rate:.1f} tokens/s in total", "共 {rate:.1f} 词元/秒"),
    "bench.prefill_speed": Sentence("{rate:.0f} tokens/s", "{rate:.0f} 词元/秒"),
    "bench.bandwidths": Sentence(
        "{median:.1f} GB/s, {best:.1f} at best", "{median:.1f} GB/s，最高 {best:.1f}"
    ),
    "bench.measured": Sentence("{peak:.0f} GFLOP/s measured", "实测 {peak:.0f} GFLOP/s"),
    "bench.isa": Sentence("{isa}, {threads} threads", "{isa}，{threads} 个线程"),
}

_TUNE = {
    "tune.measuring": Sentence(
        "loading, then measuring for some 20 s; nothing else should run meanwhile ...",
        "加载后测量约 20 秒，期间请勿运行其他程序 ...",
    ),
    "tune.busy": Sentence("nothing was kept", "未保存任何结果"),
    "tune.row_tile": Sentence("rows of a strip", "条带行数"),
    "tune.default": Sentence("the default, nothing beat it", "默认值，没有更快的"),
    "tune.gain": Sentence("{percent:+.0f} %", "{percent:+.0f} %"),
    "tune.kept": Sentence(
        "kept: every later load on this machine uses it; answers do not change",
        "已保存：此后在本机加载时都会采用，回答不变",
    ),
}

_STORED = {
    "list.model": Sentence("MODEL", "模型"),
    "list.scheme": Sentence("SCHEME", "量化方案"),
    "list.size": Sentence("SIZE", "大小"),
    "list.last_used": Sentence("LAST USED", "最近使用"),
    "list.as_fetched": Sentence("as fetched", "原始"),
    "list.empty": Sentence(
        "no model is in the cache; fetch one: dashinfer-lab pull smollm2-135m",
        "缓存中没有模型，可下载一个：dashinfer-lab pull smollm2-135m",
    ),
    "cache.kind": Sentence("KIND", "类别"),
    "cache.holds": Sentence("HOLDS", "内容"),
    "cache.size": Sentence("SIZE", "大小"),
    "cache.files": Sentence("FILES", "文件数"),
    "cache.models": Sentence("fetched models", "下载的模型"),
    "cache.conversions": Sentence("converted models", "转换后的模型"),
    "cache.objects": Sentence("compiled kernels", "编译后的内核"),
    "cache.lowered": Sentence("lowered programs", "编排好的程序"),
    "cache.schedules": Sentence("measured schedules", "测得的调度"),
    "cache.gradio": Sentence("files of the demo", "演示页面的文件"),
    "cache.where": Sentence(
        "{path}, {free:.1f} GB free on its disk (DASHINFER_LAB_CACHE chooses another)",
        "{path}，所在磁盘剩余 {free:.1f} GB（可用 DASHINFER_LAB_CACHE 另选位置）",
    ),
    "cache.removed": Sentence("removed {name}, {size}", "已删除 {name}，{size}"),
    "cache.freed": Sentence("{count} removed, {size} freed", "共删除 {count} 项，释放 {size}"),
    "models.model_type": Sentence("MODEL_TYPE", "模型类型"),
    "models.architecture": Sentence("ARCHITECTURE", "架构"),
    "models.description": Sentence("DESCRIPTION", "说明"),
    "models.proof": Sentence("SHOWN", "验证"),
    "models.test": Sentence("BY THE TEST", "由测试"),
    "models.runs": Sentence("logits", "已运行"),
    "models.emitted": Sentence("code", "仅代码"),
    "models.proofs": Sentence(
        "Each is proven by a test: logits are compared with ONNX Runtime's on the same file (of\n"
        "fp32 also with those of transformers), on x86-64, AVX2 and AVX-512. For neon (aarch64)\n"
        "code is emitted and its assembly looked at; nothing has run there. kv_: keys and values\n"
        "kept so beside weights in fp32. Tests by name: dashinfer-lab models MODEL_TYPE, --json.",
        "每一项都有测试为证：在 x86-64、AVX2、AVX-512 上，logits 与 ONNX Runtime 对同一文件\n"
        "的结果比较（fp32 还与 transformers 比较）。neon（aarch64）只生成代码并检查其汇编，\n"
        "从未实际运行。kv_：权重为 fp32，键和值按此格式保存。各测试的名称见\n"
        "dashinfer-lab models 模型类型，或 --json。",
    ),
}

_SHOW = {
    "show.model": Sentence("model", "模型"),
    "show.path": Sentence("path", "路径"),
    "show.kind": Sentence("kind", "类别"),
    "show.kind.converted": Sentence("converted", "转换后的模型"),
    "show.kind.checkpoint": Sentence("checkpoint", "检查点"),
    "show.scheme": Sentence("scheme", "量化方案"),
    "show.weight_bytes": Sentence("weights", "权重大小"),
    "show.weights_reason": Sentence("auto weights", "自动选择"),
    "show.source": Sentence("source", "来源"),
    "show.revision": Sentence("revision", "版本"),
    "show.licence": Sentence("licence", "许可证"),
    "show.context_length": Sentence("context", "上下文长度"),
    "show.tokenizer": Sentence("tokenizer", "分词器"),
    "show.unknown": Sentence("unknown", "未知"),
    "show.as_converted": Sentence("as it would be converted", "转换后将为"),
}

_WORK = {
    "load.weights": Sentence("weights {reason}", "权重 {reason}"),
    "load.kv_cache": Sentence("keys and values {reason}", "键和值 {reason}"),
    "load.and": Sentence("; ", "；"),
    "load.chosen": Sentence(
        "{chosen} (more: dashinfer-lab show {model})", "{chosen}（详见 dashinfer-lab show {model}）"
    ),
    "convert.done": Sentence(
        "converted to {scheme} in {seconds:.1f} s", "已转换为 {scheme}，用时 {seconds:.1f} 秒"
    ),
    "convert.already": Sentence(
        "it holds this model in {scheme} already: nothing was done (--overwrite converts anew)",
        "其中已有此模型的 {scheme} 转换结果，未做任何改动（--overwrite 可重新转换）",
    ),
}

_INFO = {
    "info.reason": Sentence(
        "the smallest of affinity to {affinity} CPUs, {physical_cores} physical cores, {limit}",
        "取以下最小者：可用 {affinity} 个 CPU，{physical_cores} 个物理核心，{limit}",
    ),
    "info.quota": Sentence("cgroup quota of {quota:g} CPUs", "cgroup 配额 {quota:g} 个 CPU"),
    "info.no_quota": Sentence("no cgroup quota", "无 cgroup 配额"),
}

_INFO_ZH = {
    "cpu.isa": "处理器.指令集",
    "cpu.model": "处理器.型号",
    "cpu.llvm_cpu": "处理器.LLVM 名称",
    "cpu.vector_bits": "处理器.向量位数",
    "cpu.dot": "处理器.点积指令",
    "cpu.features": "处理器.特性",
    "threads.threads": "线程.线程数",
    "threads.reason": "线程.原因",
    "threads.affinity": "线程.亲和性",
    "threads.physical_cores": "线程.物理核心",
    "threads.cgroup_quota": "线程.cgroup 配额",
    "memory.total_mb": "内存.总量 MB",
    "memory.available_mb": "内存.可用 MB",
    "memory.cgroup_limit_mb": "内存.cgroup 上限 MB",
    "weights.auto": "权重.自动选择",
    "versions": "版本",
    "schedules.stored": "调度.已测得",
    "paths.cache": "路径.缓存",
    "paths.cache_is_writable": "路径.缓存可写",
    "paths.cache_free_mb": "路径.缓存剩余 MB",
    "paths.embedded_model": "路径.内置模型",
}

_VALUES = {
    "value.yes": Sentence("yes", "是"),
    "value.no": Sentence("no", "否"),
    "value.none": Sentence("none", "无"),
}

_USAGE = {"usage": Sentence("wrong usage:", "错误：命令用法不对，可用 --help 查看说明")}

SENTENCES: Final[dict[str, Sentence]] = {
    **_QUICKSTART,
    **_USAGE,
    **_CHAT,
    **_DEMO,
    **_FIGURES,
    **_BENCH,
    **_PROFILE,
    **_TUNE,
    **_STORED,
    **_SHOW,
    **_WORK,
    **_VALUES,
    **_INFO,
    **{f"info.{name}": Sentence(name, chinese) for name, chinese in _INFO_ZH.items()},
    **{
        f"error.{name}": Sentence("error: {message}", f"错误：{chinese}\n{{message}}")
        for name, chinese in ERROR_HEADINGS.items()
    },
}
"""Every sentence, by key."""

_LANGUAGE: ContextVar[Language] = ContextVar("language", default="en")


def choose_language(language: Language) -> None:
    """Speak `language` from now on, in this context; warnings of the log, everywhere."""
    _LANGUAGE.set(language)
    log_in(language)


def language() -> Language:
    """Language spoken now."""
    return _LANGUAGE.get()


def spoken(value: object) -> str:
    """Return `value` as a person reads it: yes, no or none in the language, a list by its items."""
    if value is None:
        return text("value.none")
    if isinstance(value, bool):
        return text("value.yes" if value else "value.no")
    if isinstance(value, list):
        return " ".join(map(str, cast("list[object]", value)))
    return str(value)


def text(key: str, **values: object) -> str:
    """Return the sentence of `key` with its placeholders filled. An unknown key is a `KeyError`."""
    sentence = SENTENCES[key]
    chosen = sentence.zh if _LANGUAGE.get() == "zh" else sentence.en
    return chosen.format(**values)


def error_text(error: BaseException, message: str) -> str:
    """Return `message` under the heading of the nearest class of `error` that has one."""
    keys = (f"error.{kind.__name__}" for kind in type(error).__mro__)
    return text(next(key for key in keys if key in SENTENCES), message=message)
