"""Frequent errors say in Chinese what they say in English, and are raised with these words."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from dashinfer_lab import SamplingParams
from dashinfer_lab.demo.context import Sampling
from dashinfer_lab.engine.admission import Capacity
from dashinfer_lab.engine.auto_kv import require_kv_dtype
from dashinfer_lab.error_words import CHINESE, error_words
from dashinfer_lab.errors import DashInferLabError, EngineBusyError, RequestError
from dashinfer_lab.hub import resolve
from dashinfer_lab.prompt_encoder import PromptEncoder
from dashinfer_lab.quantize import Scheme

if TYPE_CHECKING:
    from dashinfer_lab.tokenizer import Tokenizer

ROOT = Path(__file__).parents[1]
ADMISSION = Capacity(vocab_size=100, context_length=64, num_pages=1, page_size=32)
LETTERS = cast("Tokenizer", SimpleNamespace(encode_plain=list))


@cache
def said() -> tuple[str, ...]:
    """Every sentence in the package's sources; what varies is a 7, quoted where `!r` quotes it."""
    paths = (ROOT / "dashinfer_lab").rglob("*.py")
    nodes = (it for path in paths for it in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(sentence for node in nodes for sentence in sentences(node))


def sentences(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value)
            if isinstance(part, ast.Constant)
            else ("'7'" if getattr(part, "conversion", -1) == ord("r") else "7")
            for part in node.values
        )


def pattern(english: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\{\w+\}", english))), re.DOTALL)


@pytest.mark.parametrize("english", CHINESE, ids=range(len(CHINESE)))
def test_each_is_said_somewhere_and_its_values_are_kept(english: str) -> None:
    names = set(re.findall(r"\{(\w+)\}", english)) - {"_"}
    # A list of forms is a constant of its own.
    known = english.partition("{_} or an embedded model's")[0]

    assert any(pattern(known).match(it) for it in said())
    assert set(re.findall(r"\{(\w+)\}", CHINESE[english])) == names


@pytest.mark.parametrize(
    ("fails", "chinese"),
    [
        (lambda: resolve("nowhere"), "没有模型“nowhere”：没有这样的文件或目录。请给出检查点目录"),
        (lambda: resolve("smollm2-135n"), "（smollm2-135m）。您要找的是 smollm2-135m 吗？"),
        (lambda: Scheme.parse("w3"), "没有权重格式“w3”；可选："),
        (lambda: require_kv_dtype("fp8"), "不支持键值缓存格式“fp8”；可选：auto, "),
        (lambda: ADMISSION.max_new_tokens(60, 16), "超过上下文长度 64"),
        (lambda: ADMISSION.max_new_tokens(40, 16), "需要 2 页键值缓存，而总共只有 1 页"),
        (lambda: ADMISSION.check_ids([]), "提示词为空"),
        (
            lambda: PromptEncoder(LETTERS, Path("m"), 10).ids("a" * 999, must_fit=True),
            "有 999 个字符，过长：仅前 80 个字符就有 80 个词元",
        ),
        (
            lambda: Sampling(1, 1, 0, 16, "many").params(),
            "随机种子 'many' 无效：请给出整数，或留空",
        ),
        (lambda: SamplingParams(temperature=-1), "temperature=-1 无效：应为 0 到 "),
        (lambda: SamplingParams(top_p=0), "top_p=0 无效：应为大于 0 且不超过 1 的数"),
        (lambda: SamplingParams(max_tokens=0), "max_tokens=0 无效：应为不小于 1 的整数"),
    ],
    ids=range(12),
)
def test_what_is_raised_is_told_in_chinese(fails: Callable[[], Any], chinese: str) -> None:
    with pytest.raises(DashInferLabError) as caught:
        fails()

    told = error_words(caught.value, "zh")
    assert chinese in told
    assert re.findall(r"\b(the|is|must|give|not|of|to)\b", told) == []
    assert error_words(caught.value, "en") == str(caught.value)


def test_a_full_queue_is_told_in_chinese() -> None:
    error = EngineBusyError(
        "no room for 2 more: 5 requests wait and at most 6 may; try later, or raise max_queued"
    )

    assert error_words(error, "zh").startswith("引擎忙：已有 5 个请求在排队（上限 6）")


def test_an_error_without_its_chinese_is_told_as_it_is() -> None:
    assert error_words(RequestError("quite {another} thing"), "zh") == "quite {another} thing"
