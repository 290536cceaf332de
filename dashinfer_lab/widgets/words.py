"""What the views say, in English and Chinese; knows no view."""

from __future__ import annotations

from typing import Final

from dashinfer_lab.config import Language
from dashinfer_lab.error_words import error_words
from dashinfer_lab.widgets.words_kernel import KERNEL, PROFILE
from dashinfer_lab.widgets.words_weights import EXPLORER, LOADER

__all__ = ["WORDS", "say"]

_ENGINE: Final[dict[str, tuple[str, str]]] = {
    "engine.title": ("Engine, live", "引擎实时状态"),
    "engine.batch": ("in the batch", "批次中的请求"),
    "engine.queue": ("waiting", "等待"),
    "engine.speed": ("tokens/s, last second", "词元/秒（最近一秒）"),
    "engine.step": ("last step", "最近一步"),
    "engine.pages": ("KV pages in use", "使用中的 KV 页"),
    "engine.finished": ("finished", "已完成"),
    "engine.closed": ("The engine was closed.", "引擎已关闭。"),
    "engine.speed_chart": ("Tokens decoded a second", "每秒解码的词元"),
    "engine.rate_unit": ("tokens/s", "词元/秒"),
    "engine.batch_chart": ("Requests in a step", "每步中的请求数"),
    "engine.requests": ("requests", "个请求"),
}

_CHAT: Final[dict[str, tuple[str, str]]] = {
    "chat.title": ("Chat", "对话"),
    "chat.placeholder": ("Ask anything", "输入消息"),
    "chat.empty": ("Nothing was said yet.", "还没有对话。"),
    "chat.send": ("Send", "发送"),
    "chat.stop": ("Stop", "停止"),
    "chat.again": ("Regenerate", "重新生成"),
    "chat.clear": ("New chat", "新对话"),
    "chat.sampling": ("Sampling", "采样"),
    "chat.temperature": ("temperature", "温度"),
    "chat.top_p": ("top p", "top p"),
    "chat.top_k": ("top k (0: off)", "top k（0 为关闭）"),
    "chat.max_tokens": ("longest answer", "最多词元"),
    "chat.seed": ("seed (-1: fresh)", "种子（-1 随机）"),
    "chat.thinking": ("reading the prompt …", "正在读入提示词……"),
    "chat.live": ("{count} tokens · {rate:.1f} tokens/s", "{count} 个词元 · {rate:.1f} 词元/秒"),
    "chat.ttft": (" · first token after {seconds:.2f} s", " · 首词元 {seconds:.2f} 秒"),
    "chat.stopped": ("stopped · ", "已停止 · "),
    "chat.length": ("cut at the longest answer · ", "已达最大长度 · "),
    "chat.failed": ("not answered: {message}", "未能回答：{message}"),
}

WORDS: Final = {**_ENGINE, **_CHAT, **LOADER, **EXPLORER, **KERNEL, **PROFILE}
"""English and Chinese by key, with the same placeholders."""


def say(lang: Language, key: str, **values: object) -> str:
    """The words of `key` with its placeholders filled. An unknown key is a `KeyError`.

    An error among the values says what it says in this language.
    """
    english, chinese = WORDS[key]
    for name, value in values.items():
        if isinstance(value, BaseException):
            values[name] = error_words(value, lang) or type(value).__name__
    chosen = chinese if lang == "zh" else english
    return chosen.format(**values) if values else chosen
