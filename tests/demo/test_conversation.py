from __future__ import annotations

from dashinfer_lab.demo.conversation import Conversation


def _talk(*turns: tuple[str, str]) -> Conversation:
    conversation = Conversation()
    for message, answer in turns:
        conversation.begin(message).answer = answer
    return conversation


def test_the_model_is_given_every_turn_and_the_system_prompt_first() -> None:
    conversation = _talk(("Hi", "Hello"), ("And?", ""))

    assert [tuple(m.values()) for m in conversation.for_model("Be brief.")] == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "And?"),
    ]


def test_a_blank_system_prompt_is_none() -> None:
    assert [m["role"] for m in _talk(("Hi", "")).for_model("  \n")] == ["user"]


def test_a_turn_without_an_answer_is_not_given_to_the_model() -> None:
    conversation = _talk(("lost", ""), ("Hi", ""))

    assert [m["content"] for m in conversation.for_model("")] == ["Hi"]


def test_going_back_drops_the_turn_and_all_after_it() -> None:
    for index in (2, 3):  # the person's message and the answer to it
        conversation = _talk(("a", "1"), ("b", "2"), ("c", "3"))

        assert conversation.rewind(index) == "b"
        assert [turn.message for turn in conversation.turns] == ["a"]


def test_going_back_to_what_is_no_longer_there_changes_nothing() -> None:
    conversation = _talk(("a", "1"))

    assert conversation.rewind(2) is None
    assert conversation.rewind(-2) is None
    assert len(conversation.turns) == 1
