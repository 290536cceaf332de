"""One model's tokenizer: text to ids, ids to text, chats to ids; knows no weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.tokenizer.chat import ChatTemplate, Message, check_messages, texts_of
from dashinfer_lab.tokenizer.definition import TokenizerDefinition, read_definition
from dashinfer_lab.tokenizer.incremental import IncrementalDecoder
from dashinfer_lab.tokenizer.sealed import SealedEncoder
from dashinfer_lab.tokenizer.spelling import spelling_of

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Tokenizer"]


class Tokenizer:
    """Encodes and decodes as tokenizer.json says; never cuts or pads."""

    def __init__(self, definition: TokenizerDefinition, loaded: tokenizers.Tokenizer) -> None:
        self._definition = definition
        self._tokenizer = loaded
        self._spelling = spelling_of(
            loaded, definition.decoder, has_byte_tokens=definition.has_byte_tokens
        )
        added = loaded.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        base_size = loaded.get_vocab_size(with_added_tokens=False)
        self.vocab_size: int = max(base_size, max(added, default=-1) + 1)
        bos = definition.special_tokens.get("bos_token")
        self.bos_id: int | None = definition.bos_id if bos is None else loaded.token_to_id(bos)
        eos = definition.special_tokens.get("eos_token")
        eos_id = None if eos is None else loaded.token_to_id(eos)
        self.eos_ids: frozenset[int] = definition.eos_ids | {
            found for found in (eos_id,) if found is not None
        }

    @classmethod
    def load(cls, directory: str | Path) -> Tokenizer:
        """Load the tokenizer files of a checkpoint's or a converted model's directory.

        Raises TokenizerError.
        """
        from tokenizers import Tokenizer as Loader

        definition = read_definition(Path(directory))
        path = Path(directory) / "tokenizer.json"
        try:
            loaded = Loader.from_buffer(path.read_bytes())
            loaded.encode("a")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises bare Exception, or panics
            raise TokenizerError(f"{path} cannot be loaded: {error}") from error
        loaded.no_truncation()
        loaded.no_padding()
        return cls(definition, loaded)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`; special tokens spelled in it become their ids.

        `add_special_tokens` adds what tokenizer.json's post-processor adds, such as BOS.
        Raises RequestError for what is not text.
        """
        try:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError as error:
            raise RequestError(f"cannot encode {text!r:.80}: not valid Unicode text") from error

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of `text` alone: none that begin or end a sequence are added."""
        return self.encode(text, add_special_tokens=False)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; ids beyond the vocabulary add nothing."""
        decoder = self.incremental(skip_special_tokens=skip_special_tokens)
        return "".join([decoder.push(token_id) for token_id in ids]) + decoder.finish()

    def incremental(self, *, skip_special_tokens: bool = True) -> IncrementalDecoder:
        """Return a decoder for ids that arrive one by one."""
        return IncrementalDecoder(self._spelling, self._special_ids if skip_special_tokens else ())

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token adds within a text."""
        return self._spelling.middle(token_id)

    def token_text(self, token_id: int) -> str:
        """Return a token's text for display, U+FFFD for bytes that are no whole character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def apply_chat_template(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> str:
        """Render `messages` as the model's template lays them out.

        Raises RequestError for messages that the template refuses, TokenizerError where the
        model has no usable template.
        """
        check_messages(messages)
        return self._template.render(messages, add_generation_prompt=add_generation_prompt)

    def encode_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Return the ids of a chat: one BOS where the model has one, messages as plain text.

        A special token spelled in a message is encoded like any other text. Raises as
        `apply_chat_template` does.
        """
        check_messages(messages)
        if self._spells_special(messages):
            guarded = [self._sealed.guard(message) for message in messages]
            text = self._template.render(guarded, add_generation_prompt=add_generation_prompt)
            ids = self._sealed.encode(text)
        else:
            text = self._template.render(messages, add_generation_prompt=add_generation_prompt)
            ids = self.encode(text, add_special_tokens=False)
        prefix = self._prefix_ids
        return ids if ids[: len(prefix)] == prefix else prefix + ids

    @property
    def has_chat_template(self) -> bool:
        """Whether the model says how a chat is laid out."""
        return self._definition.chat_template is not None

    @cached_property
    def _template(self) -> ChatTemplate:
        definition = self._definition
        if definition.chat_template is None:
            raise TokenizerError(
                f"{definition.directory} has no chat template. Put one under chat_template in its "
                "tokenizer_config.json, or use generate with a prompt."
            )
        variables: dict[str, object] = dict(definition.special_tokens)
        if definition.additional_special_tokens:
            variables["additional_special_tokens"] = list(definition.additional_special_tokens)
        return ChatTemplate(definition.chat_template, variables)

    @cached_property
    def _protected_ids(self) -> frozenset[int]:
        named = {i for i in (self.bos_id, *self.eos_ids) if i is not None}
        added = self._tokenizer.get_added_tokens_decoder()
        return frozenset(i for i in added if i in self._special_ids or i in named)

    @cached_property
    def _sealed(self) -> SealedEncoder:
        added = self._tokenizer.get_added_tokens_decoder()
        protected = [added[token_id].content for token_id in self._protected_ids]
        return SealedEncoder(json.loads(self._tokenizer.to_str()), protected)

    @cached_property
    def _prefix_ids(self) -> list[int]:
        """What the post-processor puts before a text: BOS, or nothing."""
        encoding = self._tokenizer.encode("a", add_special_tokens=True)
        mask = [*encoding.special_tokens_mask, 0]
        return encoding.ids[: mask.index(0)]

    def _spells_special(self, messages: Sequence[Message]) -> bool:
        text = "\n".join(texts_of(messages))
        return not self._protected_ids.isdisjoint(self.encode(text, add_special_tokens=False))
