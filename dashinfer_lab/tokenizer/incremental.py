"""Text from token ids as they arrive, never a broken character; knows no vocabulary."""

from __future__ import annotations

import codecs
from collections.abc import Collection

from dashinfer_lab.tokenizer.spelling import Spelling

__all__ = ["IncrementalDecoder"]


class IncrementalDecoder:
    """Decodes one sequence of token ids, in time linear in its length.

    The deltas of `push` and the rest from `finish`, joined, are `Tokenizer.decode` of all ids.
    The bytes of an unfinished character are held back; bytes that can never become one are U+FFFD.
    """

    def __init__(self, spelling: Spelling, skipped_ids: Collection[int] = ()) -> None:
        self._spelling = spelling
        self._skipped_ids = skipped_ids
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._began = False

    def push(self, token_id: int) -> str:
        """Return the text that `token_id` completes, "" where it completes none."""
        if token_id in self._skipped_ids:
            return ""
        spell = self._spelling.middle if self._began else self._spelling.start
        self._began = True
        return self._characters.decode(spell(token_id))

    def finish(self) -> str:
        """Return what is still held back, once; a second call returns ""."""
        return self._characters.decode(b"", final=True)
