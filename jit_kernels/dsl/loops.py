"""Control flow of a kernel: `for` and `with` in Python are loops and branches in the IR.

The body of a `for` is traced once (twice for `vectorized`: full vectors, then the masked tail).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from jit_kernels.dsl.memory import Array, VectorIndex, tail_mask
from jit_kernels.dsl.trace import current, llvm_type
from jit_kernels.dsl.values import VECTOR_LANES, Value, Variable, constant, index
from jit_kernels.types import BOOL, I64

__all__ = ["claimed", "if_else", "loop", "vectorized", "when", "while_loop"]

Count = Value[I64] | int


def loop(start: Count, stop: Count | None = None, step: int = 1) -> Iterator[Value[I64]]:
    """`for i in loop(n)`, `loop(start, stop)`, `loop(start, stop, step)`: like `range`."""
    first, last = (index(0), index(start)) if stop is None else (index(start), index(stop))
    trace = current()
    builder = trace.builder
    before = builder.block
    head, body, done = (trace.block(f"loop.{part}") for part in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    counter = builder.phi(llvm_type(I64))
    counter.add_incoming(first.ir, before)
    builder.cbranch(builder.icmp_signed("<", counter, last.ir), body, done)
    builder.position_at_end(body)
    yield Value(counter, I64)
    following = builder.add(counter, constant(step, I64).ir)
    counter.add_incoming(following, builder.block)
    builder.branch(head)
    builder.position_at_end(done)


def while_loop(condition: Callable[[], Value[BOOL]]) -> Iterator[None]:
    """`for _ in while_loop(lambda: ...)`: the condition is evaluated before every round."""
    trace = current()
    builder = trace.builder
    head, body, done = (trace.block(f"while.{part}") for part in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    builder.cbranch(condition().ir, body, done)
    builder.position_at_end(body)
    yield None
    builder.branch(head)
    builder.position_at_end(done)


@contextmanager
def when(condition: Value[BOOL]) -> Generator[None]:
    """`with when(c):` runs its body where `c` holds."""
    with current().builder.if_then(condition.ir):
        yield


def if_else(condition: Value[BOOL]) -> Iterator[bool]:
    """`for yes in if_else(c):` traces the body for both branches; `yes` is a Python bool."""
    with current().builder.if_else(condition.ir) as (then, otherwise):
        with then:
            yield True
        with otherwise:
            yield False


def vectorized(count: Count) -> Iterator[VectorIndex]:
    """Indices 0..count-1, sixteen at a time; the last vector is masked, not padded."""
    total = index(count)
    full = (total // VECTOR_LANES) * VECTOR_LANES
    for base in loop(0, full, VECTOR_LANES):
        yield VectorIndex(base)
    if isinstance(count, int) and count % VECTOR_LANES == 0:
        return
    rest = total - full
    with when(rest > 0):
        yield VectorIndex(full, tail_mask(rest))


def claimed(counter: Array[I64], count: Count) -> Iterator[Value[I64]]:
    """Share 0..count-1 among the workers: each takes the next until none is left.

    `counter[0]` must be 0 before the first worker begins.
    """
    total = index(count)
    builder = current().builder
    one = constant(1, I64)

    def take() -> Value[I64]:
        return Value(builder.atomic_rmw("add", counter.pointer, one.ir, "monotonic"), I64)

    number = Variable(take())
    for _ in while_loop(lambda: number.get() < total):
        yield number.get()
        number.set(take())
