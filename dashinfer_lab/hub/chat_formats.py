"""How families lay out a chat whose files hold no template, and where their answers end.

Source: the chat functions published with the models (modeling_chatglm.py of ChatGLM 2 and 3,
tokenization_chatglm.py of GLM-4, qwen_generation_utils.py, generation_utils.py of Baichuan,
modeling_internlm2.py). Knows no tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashinfer_lab.hub.families import family_of_model_type

__all__ = ["BuiltInFormat", "built_in_format", "has_own_format", "repaired_template"]


@dataclass(frozen=True, slots=True)
class BuiltInFormat:
    """A family's documented layout."""

    name: str
    template: str
    ends: tuple[str, ...]
    """Tokens, besides those in the files, at which an answer ends."""
    roles: tuple[str, ...] = ()
    """Tokens before a turn that the files do not call special: texts beside them stand alone."""


_CHATML = (
    "{% if messages[0]['role'] != 'system' and default_system %}"
    "<|im_start|>system\n{{ default_system }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_QWEN = BuiltInFormat(
    "ChatML",
    "{% set default_system = 'You are a helpful assistant.' %}" + _CHATML,
    ("<|im_end|>", "<|im_start|>"),
)
_INTERNLM2 = BuiltInFormat(
    "InternLM 2's ChatML",
    "{{ bos_token }}{% set default_system = '' %}" + _CHATML,
    ("<|im_end|>",),
)
_CHATGLM2 = BuiltInFormat(
    "ChatGLM 2's rounds",
    "{% set ns = namespace(round=0) %}[gMASK]<sop>{% for message in messages %}"
    "{% if message['role'] == 'user' %}{% set ns.round = ns.round + 1 %}"
    "[Round {{ ns.round }}]\n\n问：{{ message['content'] }}\n\n答："
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}\n\n{% endif %}{% endfor %}",
    (),
)
_CHATGLM3 = BuiltInFormat(
    "ChatGLM 3's roles",
    "[gMASK]<sop>{% for message in messages %}"
    "<|{{ 'observation' if message['role'] == 'tool' else message['role'] }}|>\n "
    "{{ message['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    ("<|user|>", "<|observation|>"),
)
_GLM4 = BuiltInFormat(
    "GLM-4's roles",
    "[gMASK]<sop>{% for message in messages %}"
    "<|{{ 'observation' if message['role'] == 'tool' else message['role'] }}|>\n"
    "{{ message['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    ("<|user|>", "<|observation|>"),
)
_BAICHUAN_TURNS = (
    "{% for message in messages %}{% if message['role'] == 'user' %}USER{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}ASSISTANT{{ message['content'] }}END"
    "{% elif loop.first %}SYSTEM{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT{% endif %}"
)
_SYSTEM = "{{ message['content'] }}"


def has_own_format(config: Mapping[str, object]) -> bool:
    """Whether `built_in_format` may know the family of config.json."""
    return _kind(config) in ("qwen", "internlm2", "baichuan", "chatglm")


def built_in_format(
    config: Mapping[str, object], generation: Mapping[str, object], tokens: Mapping[int, str]
) -> BuiltInFormat | None:
    """Return the format of a chat model by its config.json; None where none is documented.

    `generation` is generation_config.json, `tokens` the texts of token ids.
    """
    kind = _kind(config)
    known = set(tokens.values())
    if kind == "qwen" and generation.get("chat_format") == "chatml":
        return _QWEN
    if kind == "internlm2" and "<|im_start|>" in known:
        return _INTERNLM2
    if kind == "chatglm" and "[gMASK]" in known:
        return _chatglm(config, known)
    if kind == "baichuan":
        return _baichuan(config, generation, tokens)
    return None


def _kind(config: Mapping[str, object]) -> str:
    """Return the model type in Hugging Face's spelling."""
    family = family_of_model_type(config.get("model_type"))
    return "" if family is None else family.model_type


def _chatglm(config: Mapping[str, object], known: set[str]) -> BuiltInFormat:
    """Tell the versions apart: 4 has another vocabulary, 2 names itself."""
    if "<|endoftext|>" in known:
        return _GLM4
    is_second = config.get("model_type") == "ChatGLM_v2"
    is_second |= "chatglm2" in str(config.get("_name_or_path")).lower()
    return _CHATGLM2 if is_second else _CHATGLM3


def _baichuan(
    config: Mapping[str, object], generation: Mapping[str, object], tokens: Mapping[int, str]
) -> BuiltInFormat | None:
    """Return the roles' tokens as generation_config.json gives them; a base model has none.

    Baichuan 1 ends each answer and knows no system message; 2 begins with one.
    """
    ids = (generation.get("user_token_id"), generation.get("assistant_token_id"))
    user, assistant = (tokens.get(i) if isinstance(i, int) else None for i in ids)
    if user is None or assistant is None:
        return None
    is_first = config.get("vocab_size") == 64000
    written = (
        _BAICHUAN_TURNS.replace("USER", user)
        .replace("ASSISTANT", assistant)
        .replace("END", "{{ eos_token }}" if is_first else "")
        .replace("SYSTEM", "" if is_first else _SYSTEM)
    )
    return BuiltInFormat("Baichuan's roles", written, (), (user, assistant))


def repaired_template(template: str) -> str:
    """Return a template in which ChatGLM 3's prefix is spelled as this package spells it."""
    return template.replace("[gMASK]sop", "[gMASK]<sop>")
