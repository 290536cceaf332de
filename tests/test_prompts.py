"""What is given in place of a prompt, and what the error for it says to do."""

from __future__ import annotations

import numpy as np
import pytest

from dashinfer_lab.errors import RequestError
from dashinfer_lab.prompts import prompts_in, text_or_ids
from dashinfer_lab.tokenizer.chat import check_messages


@pytest.mark.parametrize("ids", [[1, 2, 3], np.arange(3), 7])
def test_numbers_are_told_how_token_ids_are_given(ids: object) -> None:
    with pytest.raises(RequestError, match=r'is a number; .* \{"prompt_token_ids": \[...\]\}'):
        prompts_in(ids)


def test_a_message_is_sent_to_chat() -> None:
    with pytest.raises(RequestError, match="is a message; give a list of messages to `chat`"):
        text_or_ids({"role": "user", "content": "hello"})


def test_a_text_among_messages_is_sent_to_generate() -> None:
    with pytest.raises(RequestError, match="a text goes to `generate`"):
        check_messages("hello")


def test_another_key_is_named() -> None:
    with pytest.raises(RequestError, match=r"mean nothing here: \['promt'\]"):
        text_or_ids({"promt": "hello"})
