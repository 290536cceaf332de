"""One model's tokenizer: text to ids, ids to text, chats to ids; knows no weights."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.hub.files import confined
from dashinfer_lab.tokenizer.chat import (
    ChatTemplate,
    Message,
    check_messages,
    check_tools,
    read_template,
    texts_of,
)
from dashinfer_lab.tokenizer.definition import TokenizerDefinition, read_definition
from dashinfer_lab.tokenizer.incremental import IncrementalDecoder
from dashinfer_lab.tokenizer.sealed import SealedEncoder
from dashinfer_lab.tokenizer.spelling import spelling_of

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Tokenizer"]

# Special tokens by which templates end a turn. Llama 3's first files name another end alone.
_ENDS_OF_TURN = ("<|eot_id|>", "<|eot|>", "<|im_end|>", "<|end|>", "<end_of_turn>")


class Tokenizer:
    """Encodes and decodes as tokenizer.json says; never cuts or pads."""

    def __init__(self, definition: TokenizerDefinition, loaded: tokenizers.Tokenizer) -> None:
        self._definition = definition
        self._tokenizer = loaded
        self._spelling = spelling_of(
            loaded, definition.decoder, has_byte_tokens=definition.has_byte_tokens
        )
        self._last_template: tuple[str, ChatTemplate] | None = None
        added = loaded.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        base_size = loaded.get_vocab_size(with_added_tokens=False)
        self.vocab_size: int = max(base_size, max(added, default=-1) + 1)
        bos = definition.special_tokens.get("bos_token")
        self.bos_id: int | None = definition.bos_id if bos is None else loaded.token_to_id(bos)
        eos = definition.special_tokens.get("eos_token")
        eos_id = None if eos is None else loaded.token_to_id(eos)
        written = definition.chat_template or ""
        turn_ends = {token for token in _ENDS_OF_TURN if token in written}
        self.eos_ids: frozenset[int] = definition.eos_ids.union(
            () if eos_id is None else (eos_id,),
            (i for i in self._special_ids if added[i].content in turn_ends),
        )

    @classmethod
    def load(cls, directory: str | Path) -> Tokenizer:
        """Load the tokenizer files of a checkpoint's or a converted model's directory.

        Raises TokenizerError.
        """
        from tokenizers import Tokenizer as Loader

        definition = read_definition(Path(directory))
        path = confined(Path(directory), "tokenizer.json")
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

    @classmethod
    def find(
        cls, directory: str | Path, chat_template: str | Path | None = None
    ) -> Tokenizer | None:
        """Load the tokenizer of `directory`, or return None where there is none.

        chat_template: in place of the model's own, as text or a file's path. Raises TokenizerError.
        """
        if (Path(directory) / "tokenizer.json").is_file():
            found = cls.load(directory)
            return found if chat_template is None else found.with_chat_template(chat_template)
        if chat_template is not None:
            raise TokenizerError(
                f"{directory} has no tokenizer.json: a chat template is of no use without"
            )
        return None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`; special tokens spelled in it become their ids.

        `add_special_tokens` adds what tokenizer.json's post-processor adds, such as BOS; of a BOS
        that the text brings itself it warns, and takes one.
        Raises RequestError for what is not text.
        """
        try:
            ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError as error:
            raise RequestError(f"cannot encode {text!r:.80}: not valid Unicode text") from error
        if not add_special_tokens or self.bos_id is None or ids[:2] != [self.bos_id] * 2:
            return ids
        warnings.warn(
            f"the text begins with {self.token_text(self.bos_id)!r}, which is put before every "
            "text: it is taken once",
            stacklevel=2,
        )
        return self._begun_once(ids)

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
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        chat_template: str | Path | None = None,
        **variables: object,
    ) -> str:
        """Render `messages` as the model's template lays them out.

        tools: what the model may call.  chat_template: a text or file in place of the model's.
        variables: what else the template reads, such as enable_thinking.
        Raises RequestError for messages that the template refuses, TokenizerError where the
        model has no usable template.
        """
        check_messages(messages)
        check_tools(tools)
        template = self._chosen(chat_template, tools)
        return template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        chat_template: str | Path | None = None,
        **variables: object,
    ) -> list[int]:
        """Return the ids of a chat: one BOS where the model has one, messages as plain text.

        A special token spelled in a message or tool is encoded like any other text. Options and
        errors are those of `apply_chat_template`.
        """
        check_messages(messages)
        check_tools(tools)
        given: Sequence[object] = messages
        described: Sequence[object] | None = tools
        is_guarded = self._spells_special(messages, tools)
        if is_guarded:
            given = [self._sealed.guard(message) for message in messages]
            described = tools and [self._sealed.guard(tool) for tool in tools]
        text = self._chosen(chat_template, tools).render(
            given,
            add_generation_prompt=add_generation_prompt,
            tools=described,
            variables=variables,
        )
        encode = self._sealed.encode if is_guarded else self.encode_plain
        return self._begun_once(encode(text))

    def with_chat_template(self, chat_template: str | Path) -> Tokenizer:
        """Return this tokenizer with another template, given as its text or a file's path.

        Raises TokenizerError for one that cannot be read or compiled.
        """
        source = read_template(chat_template)
        changed = Tokenizer(
            replace(
                self._definition, chat_template=source, template_origin=None, tool_template=None
            ),
            self._tokenizer,
        )
        changed._template  # noqa: B018 - it is compiled now: a mistake in it shows here
        return changed

    @property
    def has_chat_template(self) -> bool:
        """Whether the model says how a chat is laid out."""
        return self._definition.chat_template is not None

    @property
    def built_in_format(self) -> str | None:
        """Name of the family's own chat format, taken where its files hold no template."""
        return self._definition.template_origin

    @cached_property
    def _template(self) -> ChatTemplate:
        definition = self._definition
        if definition.chat_template is None:
            raise TokenizerError(
                f"{definition.directory} has no chat template: it may be no chat model. Give one "
                "with chat_template (--chat-template FILE), put it under chat_template in its "
                "tokenizer_config.json, or use generate with a prompt."
            )
        return self._compiled(definition.chat_template)

    def _compiled(self, source: str) -> ChatTemplate:
        definition = self._definition
        variables: dict[str, object] = dict(definition.special_tokens)
        if definition.additional_special_tokens:
            variables["additional_special_tokens"] = list(definition.additional_special_tokens)
        return ChatTemplate(source, variables)

    def _chosen(self, chat_template: str | Path | None, tools: object) -> ChatTemplate:
        """Return the template of a call; the last one given is kept compiled."""
        chat_template = chat_template or (self._definition.tool_template if tools else None)
        if chat_template is None:
            return self._template
        source = read_template(chat_template)
        if self._last_template is None or self._last_template[0] != source:
            self._last_template = (source, self._compiled(source))
        return self._last_template[1]

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

    def _begun_once(self, ids: list[int]) -> list[int]:
        """Return `ids` with the tokens that begin a sequence before them exactly once."""
        prefix = self._prefix_ids
        begun = ids if ids[: len(prefix)] == prefix else prefix + ids
        while self.bos_id is not None and begun[:2] == [self.bos_id] * 2:
            begun = begun[1:]
        return begun

    def _spells_special(self, *given: object) -> bool:
        text = "\n".join(texts_of(given))
        return not self._protected_ids.isdisjoint(self.encode(text, add_special_tokens=False))
