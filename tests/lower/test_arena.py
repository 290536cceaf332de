from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dashinfer_lab.lower.arena import place
from dashinfer_lab.lower.plan import BarrierKind, Buffer, PlannedOp


def call(
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    barrier: BarrierKind = "always",
    alias: str | None = None,
) -> PlannedOp:
    return PlannedOp("k", {}, {}, "num_tokens", barrier, "name", None, reads, writes, alias)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[PlannedOp], dict[str, int]]:
    """Calls that read what earlier ones wrote, and the sizes of their buffers."""
    ops: list[PlannedOp] = []
    sizes: dict[str, int] = {}
    for i in range(draw(st.integers(1, 20))):
        reads = draw(st.lists(st.sampled_from(sorted(sizes)), max_size=3)) if sizes else []
        name = f"b{i}"
        sizes[name] = draw(st.integers(1, 1000))
        barrier: BarrierKind = draw(st.sampled_from(["always", "shared", "never"]))
        ops.append(call(tuple(reads), (name,), barrier))
    return ops, sizes


def lifetimes(ops: list[PlannedOp]) -> dict[str, tuple[int, int]]:
    """First and last phase in which each buffer is touched."""
    found: dict[str, tuple[int, int]] = {}
    phase = 0
    for op in ops:
        for name in (*op.reads, *op.writes):
            found[name] = (found.get(name, (phase, phase))[0], phase)
        phase += op.barrier == "always"
    return found


def overlap(left: Buffer, right: Buffer) -> bool:
    left_end, right_end = left.offset + left.num_bytes, right.offset + right.num_bytes
    return left.offset < right_end and right.offset < left_end


@given(programs())
def test_buffers_that_live_in_one_phase_never_overlap(
    program: tuple[list[PlannedOp], dict[str, int]],
) -> None:
    ops, sizes = program

    buffers, total = place(ops, sizes)

    lives = lifetimes(ops)
    for left, right in combinations(buffers.values(), 2):
        (first, last), (other_first, other_last) = lives[left.name], lives[right.name]
        if first <= other_last and other_first <= last:
            assert not overlap(left, right), (left, right)
    assert all(buffer.offset % 64 == 0 for buffer in buffers.values())
    assert max(buffer.offset + buffer.num_bytes for buffer in buffers.values()) <= total


def test_memory_is_used_again_once_everyone_has_finished_with_it() -> None:
    ops = [call((), ("a",)), call(("a",), ("b",)), call(("b",), ("c",))]

    buffers, total = place(ops, dict.fromkeys("abc", 64))

    assert buffers["c"].offset == buffers["a"].offset
    assert total == 128


def test_without_a_barrier_a_slow_worker_may_still_read_what_looks_dead() -> None:
    ops = [call((), ("a",)), call(("a",), ("b",), "never"), call(("b",), ("c",), "never")]

    _, total = place(ops, dict.fromkeys("abc", 64))

    assert total == 192


def test_an_alias_takes_over_the_memory_it_names() -> None:
    ops = [call((), ("x",)), call(("x",), ("y",), alias="x"), call(("y",), ("z",))]

    buffers, total = place(ops, {"x": 64, "y": 128, "z": 64})

    assert buffers["y"].offset == buffers["x"].offset
    assert total == 192
