"""Warnings of the log in Chinese, where that is the language; the loggers' own words are English.

Loggers of `jit_kernels` know no language. Knows no logger but by its name.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from dashinfer_lab.config import Language, default_language

__all__ = ["CHINESE", "log_in", "translate_log", "warnings_kept"]

CHINESE: Final = {
    "jit_kernels": {
        "cannot write compiled kernels to %s (%s): they are kept in memory and compiled again by "
        "the next process; give a writable directory (JIT_KERNELS_CACHE, or the cache of the "
        "program that uses jit_kernels)": "无法将编译好的内核写入 %s（%s）：内核只保留在内存中，"
        "下一个进程会重新编译；请提供可写的目录（JIT_KERNELS_CACHE，或所用程序的缓存目录）",
    },
    "jit_kernels.runtime.contention": {
        "other programs keep the processors busy: %d of %d threads are used while that lasts; "
        "results do not change, speed does": "其他程序正占用处理器：在此期间使用 %d / %d 个线程；"
        "结果不变，速度会变",
    },
    "dashinfer_lab.engine.core": {
        "a subscriber failed and is dropped: %r": "一个事件订阅者出错，已被移除：%r",
    },
    "dashinfer_lab.engine.loading": {
        "threads=%d, but only %d can run at once: they take turns, which is slow for this program "
        "and for others; leave threads away": "threads=%d，但同时只能运行 %d 个：线程轮流运行，"
        "会拖慢本程序和其他程序；请不要指定 threads",
        "activations are rounded to %d bits, which changes answers; a16w8 and a16w4 keep 16 bits "
        "and decode one request as fast": "激活值被舍入到 %d 位，会改变回答；a16w8 和 a16w4 "
        "保留 16 位，单个请求的解码同样快",
        "positions turn by LongRoPE's long factors, for contexts above %d tokens; "
        "context_length=%d or less takes the short ones, which short prompts were trained "
        "with": "位置按 LongRoPE 的长因子旋转，适用于超过 %d 个词元的上下文；"
        "context_length=%d 或更小时采用短因子，短提示词是以它训练的",
    },
    "dashinfer_lab.engine.processed": {
        "a request has logits_processors: its every token waits for Python, and so do those of "
        "all other requests": "有请求使用了 logits_processors：它的每个词元都要等待 Python，"
        "其他请求的词元也一样",
    },
    "dashinfer_lab.lower.schedules": {
        "other programs kept the processors busy: schedules stay as they are; measure again when "
        "nothing else runs": "其他程序占用了处理器：调度方案保持不变；"
        "请在没有其他程序运行时重新测量",
        "cannot write %s: the schedules are measured again next time": "无法写入 %s："
        "下次会重新测量调度方案",
    },
}
"""The Chinese of every warning, by its logger and its words, with the same placeholders."""


class _Words(logging.Filter):
    """Lets every record pass, in the language chosen or the locale's."""

    language: Language | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if (self.language or default_language()) == "zh":
            record.msg = CHINESE.get(record.name, {}).get(str(record.msg), record.msg)
        return True


_WORDS: Final = _Words()


def translate_log() -> None:
    """Say warnings in the language chosen by `log_in`, else in the locale's; once is enough."""
    for name in CHINESE:
        logging.getLogger(name).addFilter(_WORDS)


def log_in(language: Language | None) -> None:
    """Choose the language of warnings; None is the locale's."""
    _WORDS.language = language


@contextmanager
def warnings_kept() -> Generator[list[str]]:
    """Keep what the log warns of meanwhile, to be said afterwards where no handler says it."""
    kept = _Kept(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(kept)
    try:
        yield kept.words
    finally:
        root.removeHandler(kept)


class _Kept(logging.Handler):
    """Collects what is said."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())
