"""Errors that people meet often, said in Chinese; the errors' own words are English.

An error without its Chinese here is told as it is. Knows errors by what they say, not by who
raises them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from dashinfer_lab.config import Language

__all__ = ["CHINESE", "error_words"]

_FORMS_ZH: Final = (
    "请给出检查点目录（config.json 与 safetensors 文件，或 DashInfer 的 .dimodel 与 .ditensors）、"
    "已转换模型的目录、GGUF 文件、ModelScope 模型 ID（owner/name 或 owner/name@revision）、"
    "Hugging Face 模型 ID（hf:owner/name），或内置模型名称"
)
_UNREACHABLE_ZH: Final = "已下载的部分会保留，下次从断点继续。内置模型无需下载：smollm2-135m。"

CHINESE: Final[dict[str, str]] = {
    (
        "no model '{name}': there is no such file or directory. Give {_} or an embedded model's "
        "name ({embedded})"
    ): (f"没有模型“{{name}}”：没有这样的文件或目录。{_FORMS_ZH}（{{embedded}}）"),
    (
        "{model} is not complete in the cache, and {hub} does not answer ({error}). Check the "
        "network, or MODELSCOPE_ENDPOINT; {_}"
    ): (
        "{model} 在缓存中不完整，而 {hub} 没有响应（{error}）。请检查网络或 MODELSCOPE_ENDPOINT；"
        f"{_UNREACHABLE_ZH}"
    ),
    (
        "{model} is not complete in the cache, and {hub} does not answer ({error}). Check the "
        "network, or set HF_ENDPOINT to a mirror; {_}"
    ): (
        "{model} 在缓存中不完整，而 {hub} 没有响应（{error}）。请检查网络，或将 HF_ENDPOINT 设为"
        "镜像；"
        f"{_UNREACHABLE_ZH}"
    ),
    (
        "{hub} has no model '{name}' with revision {revision}. Check the spelling; if it is "
        "private, set {token} to your access token."
    ): (
        "{hub} 上没有模型“{name}”（版本 {revision}）。请检查拼写；若为私有模型，请将 {token} 设为"
        "您的访问令牌。"
    ),
    (
        "{path} holds no model: neither a converted one (.dimodel) nor config.json with "
        "safetensors files nor a GGUF file"
    ): (
        "{path} 中没有模型：既没有已转换的模型（.dimodel），也没有 config.json 与 safetensors 文"
        "件，也没有 GGUF 文件"
    ),
    ("{path} does not exist"): ("{path} 不存在"),
    (
        "{model} needs {needed} MB more in {place}, {free} MB are free. Free some, or set "
        "DASHINFER_LAB_CACHE to another disk."
    ): (
        "{model} 还需要 {place} 的 {needed} MB，只剩 {free} MB。请清理空间，或将 "
        "DASHINFER_LAB_CACHE 设到其他磁盘。"
    ),
    (
        "{model} needs {needed} MiB in {place}, {free} MiB are free. Free some, or set "
        "DASHINFER_LAB_CACHE to another disk."
    ): (
        "{model} 需要 {place} 的 {needed} MiB，只剩 {free} MiB。请清理空间，或将 "
        "DASHINFER_LAB_CACHE 设到其他磁盘。"
    ),
    ("architecture {name} is not supported; supported: {supported}"): (
        "不支持架构 {name}；支持的架构：{supported}"
    ),
    (
        "weights scheme '{name}' is unknown; it is one of {known} or, with groups of {_}, G of "
        "{sizes}"
    ): ("没有权重格式“{name}”；可选：{known}，或指定每组 G 个权重，如 a16w8:G，G 为 {sizes}"),
    ("kv_cache_dtype='{name}' is not supported; it is one of {known}"): (
        "不支持键值缓存格式“{name}”；可选：{known}"
    ),
    (
        "{path} was converted to {scheme}, not {wanted}: load its checkpoint with weights={_}, "
        "or leave weights='auto'"
    ): ("{path} 已转换为 {scheme}，而不是 {wanted}：请加载它的检查点，或保留 weights='auto'"),
    (
        "context_length={length} exceeds the {trained} positions this model was trained for: "
        "lower it"
    ): ("context_length={length} 超过模型训练时的 {trained} 个位置：请调小"),
    ("kv_cache_bytes={wanted} exceeds this machine's {total} bytes of memory: lower it"): (
        "键值缓存 {wanted} 字节超过本机内存 {total} 字节：请调小"
    ),
    (
        "a prompt of {prompt} tokens and {new} new ones (max_tokens={_}) exceed the context of "
        "{context} tokens: shorten the prompt or lower max_tokens"
    ): (
        "提示词 {prompt} 个词元，加上要生成的 {new} 个，超过上下文长度 {context}：请缩短提示词，"
        "或调小最多词元数"
    ),
    (
        "a prompt of {prompt} tokens and {new} new ones (max_tokens={_}) need {needed} cache "
        "pages but there are {pages} of {page} tokens: shorten the prompt, lower max_tokens, or "
        "give the cache more memory"
    ): (
        "提示词 {prompt} 个词元，加上要生成的 {new} 个，需要 {needed} 页键值缓存，而总共只有 "
        "{pages} 页（每页 {page} 个词元）：请缩短提示词、调小最多词元数，或给缓存更多内存"
    ),
    (
        "a text of {length} characters is too long: its first {head} are {tokens} tokens, and "
        "{most} are all that context and cache hold beside a new one: shorten it, or let "
        "truncate_prompt_tokens cut it"
    ): (
        "文本有 {length} 个字符，过长：仅前 {head} 个字符就有 {tokens} 个词元，而上下文和缓存"
        "除一个新词元外最多容纳 {most} 个：请缩短文本，或用 truncate_prompt_tokens 截断"
    ),
    ("the prompt is empty: give at least one token"): ("提示词为空：请至少给出一个词元"),
    ("the conversation is empty: give at least one message"): ("对话为空：请至少给出一条消息"),
    ("seed={value} is not possible: give a whole number, or nothing"): (
        "随机种子 {value} 无效：请给出整数，或留空"
    ),
    ("{name}={value} is not possible: it must be {wanted}"): ("{name}={value} 无效：应为{wanted}"),
    (
        "no room for {count} more: {waiting} requests wait and at most {most} may; try later, or "
        "raise max_queued"
    ): (
        "引擎忙：已有 {waiting} 个请求在排队（上限 {most}），无法再接受 {count} 个；请稍后重试，"
        "或调大 max_queued"
    ),
    ("the engine is closed; make a new one"): ("引擎已关闭，请重新加载模型"),
    (
        "request {_} was not done within its timeout_seconds={seconds}: give it more time, or "
        "ask for less"
    ): ("请求未能在 {seconds} 秒内完成：请放宽时限，或减少要生成的词元"),
    (
        "request {_} met NaN or infinity near position {position} and ended; other requests go "
        "on. Check the checkpoint, or load it with weights='fp32'"
    ): (
        "请求在位置 {position} 附近遇到 NaN 或无穷大，已结束；其他请求不受影响。请检查模型文件，"
        "或改用 fp32 权重"
    ),
    ("no token may be drawn: {_}; loosen one"): (
        "没有可选的词元：allowed ids、bad words、min_tokens 与 no_repeat_ngram_size 合起来排除了"
        "所有词元；请放宽其中之一"
    ),
}
"""The Chinese of errors, by their English with what varies in braces; `_` is left out."""

_WANTED: Final[dict[str, str]] = {
    "a whole number from {low} to {high}": " {low} 到 {high} 的整数",
    "a whole number of at least {low}": "不小于 {low} 的整数",
    "a number from {low} to {high} (1 is off)": " {low} 到 {high} 的数（1 为关闭）",
    "a number above {low} and at most {high} (1 is off)": "大于 {low} 且不超过 {high} 的数"
    "（1 为关闭）",
    "a number from {low} to {high}": " {low} 到 {high} 的数",
    "a finite number": "有限的数",
    "True or False": " True 或 False",
    "a text or a list of texts, none of them empty": "文本或文本列表，均不能为空",
}
_MEANT: Final = re.compile(r"\. Did you mean (?P<names>.+?)\?(?= |$)", re.DOTALL)


def error_words(error: BaseException, language: Language) -> str:
    """Say what `error` says, in Chinese where that is the language and the error has it."""
    english = str(error)
    if language == "en":
        return english
    meant = _MEANT.search(english)
    said = _MEANT.sub(".", english)
    chinese = _translated(said, CHINESE) or _translated(said.rstrip("."), CHINESE)
    if chinese is None:
        return english
    names = meant["names"].replace(" or ", " 或 ") if meant else None
    return f"{chinese.rstrip('。')}。您要找的是 {names} 吗？" if names else chinese


def _translated(said: str, chinese: dict[str, str]) -> str | None:
    for english, translation in chinese.items():
        found = _pattern(english).fullmatch(said)
        if found is not None:
            values = found.groupdict()
            if "wanted" in values:
                values["wanted"] = _translated(values["wanted"], _WANTED) or values["wanted"]
            return translation.format(**values)
    return None


@cache
def _pattern(english: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", english)
    known, names = parts[::2], parts[1::2]
    holes = [".*?" if name == "_" else f"(?P<{name}>.+?)" for name in names] + [""]
    literal = [re.escape(text) for text in known]
    return re.compile("".join(a + b for a, b in zip(literal, holes, strict=True)), re.DOTALL)
