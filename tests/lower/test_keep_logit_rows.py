"""Which operations see all rows of a step, and which only those that logits are asked of."""

from __future__ import annotations

from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.passes import keep_logit_rows

_LINEAR = {"residual": True}


def block(number: int, x: str) -> list[Op]:
    """A decoder layer that reads `x` and makes `x` with its number."""
    return [
        Op("rmsnorm", f"norm{number}", (x,), (f"h{number}",)),
        Op("linear", f"qkv{number}", (f"h{number}",), (f"q{number}",)),
        Op("paged_attention", f"attention{number}", (f"q{number}",), (f"a{number}",)),
        Op("linear", f"o{number}", (f"a{number}", x), (f"x{number}",), _LINEAR, number),
    ]


def test_only_the_last_attention_parts_all_rows_from_those_that_are_kept() -> None:
    ops = [*block(0, "x"), *block(1, "x0"), Op("linear", "head", ("x1",), ("logits",))]

    kept = keep_logit_rows([Op("embedding", "embed", (), ("x",)), *ops])

    assert [op.name for op in kept if op.rows == "num_tokens"] == [
        "embed", "norm0", "qkv0", "attention0", "o0", "norm1", "qkv1", "attention1",
    ]  # fmt: skip
    rest = [(op.kind, op.inputs, op.outputs) for op in kept if op.rows == "num_logit_rows"]
    assert rest == [
        ("gather_rows", ("a1",), ("a1.kept",)),
        ("gather_rows", ("x0",), ("x0.kept",)),
        ("linear", ("a1.kept", "x0.kept"), ("x1",)),
        ("linear", ("x1",), ("logits",)),
    ]


def test_a_value_is_gathered_once_however_many_read_it() -> None:
    ops = [
        Op("embedding", "embed", (), ("x",)),
        Op("paged_attention", "attention", ("x",), ("a",)),
        Op("linear", "one", ("a",), ("b",)),
        Op("linear", "two", ("a", "b"), ("logits",)),
    ]

    assert [op.kind for op in keep_logit_rows(ops)].count("gather_rows") == 1


def test_a_norm_that_is_read_on_both_sides_is_made_again_of_the_rows_that_are_kept() -> None:
    ops = [
        Op("embedding", "embed", (), ("x",)),
        Op("rmsnorm", "norm", ("x",), ("h",)),
        Op("paged_attention", "attention", ("h",), ("a",)),
        Op("linear", "mlp", ("h",), ("m",)),
    ]

    rest = [(op.kind, op.inputs, op.outputs) for op in keep_logit_rows(ops)[3:]]

    assert rest == [
        ("gather_rows", ("x",), ("x.kept",)),
        ("rmsnorm", ("x.kept",), ("h.kept",)),
        ("linear", ("h.kept",), ("m",)),
    ]


def test_operations_without_attention_are_left_as_they_are() -> None:
    ops = [Op("embedding", "embed", (), ("x",)), Op("linear", "head", ("x",), ("logits",))]

    assert keep_logit_rows(ops) == ops
