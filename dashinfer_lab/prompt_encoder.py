"""From prompts and conversations to ids, for a model with a tokenizer and a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.prompts import Message, Prompt, text_or_ids

if TYPE_CHECKING:
    from dashinfer_lab.tokenizer import Tokenizer

__all__ = ["PromptEncoder", "TextTooLongError"]

_CHARACTERS_A_TOKEN: Final = 8
_TOKENS_OF_A_CUT: Final = 64  # one word may be spelled otherwise where a text is cut


class TextTooLongError(RequestError):
    """A text is far too long for the model."""


class PromptEncoder:
    """Encodes with the tokenizer of the model in `directory`, which may have none.

    longest_prompt: tokens that can be served. With `must_fit` a text far too long raises
    `TextTooLongError`, as soon for megabytes as for less.
    """

    def __init__(self, tokenizer: Tokenizer | None, directory: Path, longest_prompt: int) -> None:
        self._tokenizer: Final = tokenizer
        self._directory: Final = directory
        self._longest_prompt: Final = longest_prompt

    def required_tokenizer(self) -> Tokenizer:
        """The tokenizer; raises `TokenizerError` where the model has none."""
        if self._tokenizer is None:
            raise TokenizerError(
                f"{self._directory} has no tokenizer.json: give prompts as "
                '{"prompt_token_ids": [...]}'
            )
        return self._tokenizer

    def ids(self, prompt: Prompt, *, must_fit: bool) -> Iterable[int]:
        """The ids of a prompt; raises `RequestError` or `TokenizerError`."""
        given = text_or_ids(prompt)
        if not isinstance(given, str):
            return given
        if must_fit:
            self._require_may_fit(given)
        return self.required_tokenizer().encode(given)

    def chat_ids(self, messages: Sequence[Message], *, must_fit: bool, **layout: Any) -> list[int]:
        """The ids of a conversation; layout: as in `Tokenizer.apply_chat_template`.

        Raises what that and `ids` raise.
        """
        if isinstance(messages, list | tuple) and not messages:
            raise RequestError("the conversation is empty: give at least one message")
        if must_fit:
            # No template leaves away what was said last.
            self._require_may_fit(_last_text(messages))
        return self.required_tokenizer().encode_chat(messages, **layout)

    def _require_may_fit(self, text: str) -> None:
        """Encode a head of eight characters for each token that fits: twice what most texts take.

        A text that says more by each token is left to be encoded whole.
        """
        head = text[: _CHARACTERS_A_TOKEN * self._longest_prompt]
        if len(head) == len(text):
            return
        num_tokens = len(self.required_tokenizer().encode_plain(head))
        if num_tokens > self._longest_prompt + _TOKENS_OF_A_CUT:
            raise TextTooLongError(
                f"a text of {len(text)} characters is too long: its first {len(head)} are "
                f"{num_tokens} tokens, and {self._longest_prompt} are all that context and cache "
                "hold beside a new one: shorten it, or let truncate_prompt_tokens cut it"
            )


def _last_text(messages: object) -> str:
    """What was said last; nothing in what is no conversation, which others find out."""
    last = messages[-1] if isinstance(messages, list | tuple) else None
    content = last.get("content") if isinstance(last, Mapping) else None
    return content if isinstance(content, str) else ""
