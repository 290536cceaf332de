"""What the page says, in English and Chinese; knows no page."""

from __future__ import annotations

from typing import Final, NamedTuple

from dashinfer_lab.config import Language
from dashinfer_lab.error_words import error_words

__all__ = ["SENTENCES", "Sentence", "Texts"]


class Sentence(NamedTuple):
    """One sentence in both languages, with the same placeholders."""

    en: str
    zh: str


_PAGE = {
    "page.title": Sentence("DashInfer Lab", "DashInfer Lab"),
    "page.subtitle": Sentence(
        "A language model on this machine's CPU. Nothing you type leaves it.",
        "在本机 CPU 上运行的大语言模型，输入的内容不会离开本机。",
    ),
    "tab.chat": Sentence("Chat", "对话"),
    "tab.compare": Sentence("Compare", "对比"),
    "tab.profile": Sentence("Profile", "性能剖析"),
}

_CHAT = {
    "chat.placeholder": Sentence("Ask anything", "输入消息"),
    "chat.box": Sentence("Message", "消息"),
    "chat.empty": Sentence(
        "Answers stream as they are computed. Several tabs can talk at once: "
        "their requests run in one batch.",
        "回答边计算边显示。可同时打开多个页面对话，它们的请求在同一批次中运行。",
    ),
    "chat.clear": Sentence("New chat", "新对话"),
    "chat.conversation": Sentence("Conversation", "对话内容"),
    "chat.example.1": Sentence("What is a CPU cache?", "CPU 缓存是什么？"),
    "chat.example.2": Sentence("Write a haiku about rain.", "写一首关于雨的俳句。"),
    "chat.example.3": Sentence("Explain recursion in two sentences.", "用两句话解释递归。"),
    "chat.system": Sentence("System prompt", "系统提示词"),
    "chat.system_hint": Sentence(
        "What the assistant is told first; empty leaves it to the model.",
        "最先告诉模型的内容；留空则使用模型自带的设置。",
    ),
    "chat.stop": Sentence("Stop", "停止"),
    "chat.copy": Sentence("Copy", "复制"),
    "chat.send": Sentence("Send", "发送"),
}

_SAMPLING = {
    "sampling.title": Sentence("Sampling", "采样"),
    "sampling.temperature": Sentence("Temperature", "温度"),
    "sampling.temperature_hint": Sentence(
        "0 takes the likeliest token", "为 0 时总取概率最大的词元"
    ),
    "sampling.top_p": Sentence("Top p", "Top p"),
    "sampling.top_k": Sentence("Top k (0 is off)", "Top k（0 为关闭）"),
    "sampling.max_tokens": Sentence("Most tokens", "最多词元数"),
    "sampling.seed": Sentence("Seed (empty draws a fresh one)", "随机种子（留空则每次不同）"),
}

_MODEL = {
    "model.name": Sentence("Model", "模型"),
    "model.name_hint": Sentence(
        "A name from the list, a directory, a GGUF file, or a ModelScope id",
        "列表中的名称、目录、GGUF 文件或 ModelScope 模型 ID",
    ),
    "model.weights": Sentence("Weights", "权重格式"),
    "model.kv_cache_dtype": Sentence("Keys and values", "键值缓存格式"),
    "model.english_only": Sentence(
        "smollm2-135m understands English only and is very small: expect mistakes.",
        "smollm2-135m 仅支持英文，且规模很小，回答可能有误。",
    ),
    "model.refused": Sentence("Not loaded: {message}", "未加载：{message}"),
    "model.larger": Sentence("Fetch {name} instead", "下载并改用 {name}"),
}

_ANSWER = {
    "answer.tokens": Sentence("{count} tokens", "{count} 个词元"),
    "answer.speed": Sentence("{rate:.1f} tokens/s", "{rate:.1f} 词元/秒"),
    "answer.ttft": Sentence("first token after {seconds:.2f} s", "首词元 {seconds:.2f} 秒"),
    "answer.waiting": Sentence("waiting for the first token …", "正在等待第一个词元……"),
    "answer.stopped": Sentence("stopped", "已停止"),
    "answer.length": Sentence("cut at the longest answer allowed", "已达最大长度"),
    "answer.error": Sentence("not answered: {message}", "未能回答：{message}"),
}

_PANEL = {
    "panel.title": Sentence("Model and machine", "模型与本机"),
    "panel.engine": Sentence("Engine", "引擎"),
    "panel.running": Sentence(
        "{running} running, {queued} waiting", "{running} 个运行，{queued} 个等待"
    ),
    "panel.pages": Sentence("KV cache", "KV 缓存"),
    "panel.pages_used": Sentence("{used} of {total} pages", "{used} / {total} 页"),
    "panel.weights": Sentence("Weights", "权重"),
    "panel.weights_size": Sentence("{scheme}, {mb:.0f} MB", "{scheme}，{mb:.0f} MB"),
    "panel.isa": Sentence("Instruction set", "指令集"),
    "panel.threads": Sentence("Threads", "线程"),
    "panel.memory": Sentence("Memory", "内存"),
    "panel.memory_used": Sentence(
        "{used:.0f} MB, {free:.1f} GB free", "{used:.0f} MB，空闲 {free:.1f} GB"
    ),
    "panel.architecture": Sentence("Architecture", "架构"),
    "panel.layers": Sentence("{kind}, {layers} layers", "{kind}，{layers} 层"),
    "panel.context": Sentence("Context", "上下文"),
    "panel.context_tokens": Sentence("{count} tokens", "{count} 个词元"),
    "panel.not_loaded": Sentence("not loaded", "未加载"),
}

_COMPARE = {
    "compare.intro": Sentence(
        "One prompt, answered twice from the same model in two weight formats, without sampling.",
        "同一提示词，由同一模型的两种权重格式各回答一次，不做随机采样。",
    ),
    "compare.prompt": Sentence("Prompt", "提示词"),
    "compare.default": Sentence(
        "Explain why the sky is blue, in a few sentences.", "用几句话解释天空为什么是蓝色的。"
    ),
    "compare.left": Sentence("First weights", "第一种权重"),
    "compare.right": Sentence("Second weights", "第二种权重"),
    "compare.answer": Sentence("Answer", "回答"),
    "compare.run": Sentence("Compare", "开始对比"),
    "compare.same": Sentence(
        "Both answers are the same, token for token ({count}).",
        "两个回答逐词元相同（{count} 个）。",
    ),
    "compare.differ": Sentence(
        "The answers agree for {count} tokens, then part.",
        "两个回答的前 {count} 个词元相同，之后不同。",
    ),
    "compare.apart": Sentence(
        "The answers differ from the first token on.", "两个回答从第一个词元起就不同。"
    ),
    "compare.cost": Sentence(
        "The weights of {small} take {share:.0%} of those of {large}; it decoded {speed:.1f} times "
        "as fast.",
        "{small} 的权重大小是 {large} 的 {share:.0%}，解码速度是其 {speed:.1f} 倍。",
    ),
    "compare.size": Sentence("{mb:.0f} MB of weights", "权重 {mb:.0f} MB"),
}

_PROFILE = {
    "profile.intro": Sentence(
        "Runs the prompt once and times every operator; prefill and decode apart.",
        "运行一次提示词，为每个算子计时；预填充与解码分开统计。",
    ),
    "profile.prompt": Sentence("Prompt", "提示词"),
    "profile.default": Sentence(
        "The quick brown fox jumps over the lazy dog. " * 6,
        "The quick brown fox jumps over the lazy dog. " * 6,
    ),
    "profile.tokens": Sentence("Tokens to generate", "生成的词元数"),
    "profile.run": Sentence("Profile", "开始剖析"),
}

SENTENCES: Final[dict[str, Sentence]] = {
    **_PAGE,
    **_CHAT,
    **_SAMPLING,
    **_MODEL,
    **_ANSWER,
    **_PANEL,
    **_COMPARE,
    **_PROFILE,
}
"""Every sentence, by key."""


class Texts:
    """Speaks one language."""

    def __init__(self, language: Language) -> None:
        self.language: Final = language

    def __call__(self, key: str, **values: object) -> str:
        """Return the sentence of `key`, placeholders filled. An unknown key is a `KeyError`."""
        sentence = SENTENCES[key]
        chosen = sentence.zh if self.language == "zh" else sentence.en
        return chosen.format(**values) if values else chosen

    def error(self, error: BaseException) -> str:
        """Return what `error` says; in Chinese where that is spoken and the error has it."""
        return error_words(error, self.language)
