"""Each request's time: in the queue, in chunks of its prompt, in decode steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dashinfer_lab.profiling.steps import ChunkSpan, StepTimes

__all__ = ["RequestTimeline", "Stretch", "StretchKind", "request_timelines"]

StretchKind = Literal["queue", "prefill", "decode"]
"""What a request does."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time of one request doing one thing, on the clock of the steps.

    first_step, last_step: steps of the profile it took part in, None in the queue.
    """

    kind: StretchKind
    begin_seconds: float
    end_seconds: float
    num_tokens: int = 0
    first_step: int | None = None
    last_step: int | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_seconds - self.begin_seconds


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """One request; decode steps that follow each other are one stretch, prefill chunks are not."""

    request_id: int
    stretches: tuple[Stretch, ...]

    def seconds(self, kind: StretchKind) -> float:
        """Time spent so."""
        return sum(each.seconds for each in self.stretches if each.kind == kind)

    def num_tokens(self, kind: StretchKind) -> int:
        """Tokens computed so."""
        return sum(each.num_tokens for each in self.stretches if each.kind == kind)

    def as_dict(self) -> dict[str, Any]:
        """Names and values, for JSON."""
        return {
            "request_id": self.request_id,
            "stretches": [asdict(each) for each in self.stretches],
        }


def request_timelines(
    steps: Sequence[StepTimes], *, merge_decode: bool = True
) -> list[RequestTimeline]:
    """Every request that a step worked on, in order of their ids.

    A request whose first chunk was not recorded has no queue: it is not known.
    """
    found: dict[int, list[Stretch]] = {}
    for index, step in enumerate(steps):
        for chunk in step.shape.chunks:
            stretches = found.setdefault(chunk.request_id, [])
            if not stretches and chunk.begins:
                stretches.append(Stretch("queue", chunk.arrival_seconds, step.begin_seconds))
            _extend(stretches, _stretch(chunk, step, index), merge_decode)
    return [RequestTimeline(each, tuple(found[each])) for each in sorted(found)]


def _stretch(chunk: ChunkSpan, step: StepTimes, index: int) -> Stretch:
    kind: StretchKind = "decode" if chunk.decoding else "prefill"
    return Stretch(kind, step.begin_seconds, step.end_seconds, chunk.length, index, index)


def _extend(stretches: list[Stretch], new: Stretch, merge_decode: bool) -> None:
    last = stretches[-1] if stretches else None
    if not merge_decode or last is None or not _follows(last, new):
        stretches.append(new)
        return
    stretches[-1] = replace(
        last,
        end_seconds=new.end_seconds,
        num_tokens=last.num_tokens + new.num_tokens,
        last_step=new.last_step,
    )


def _follows(last: Stretch, new: Stretch) -> bool:
    """Whether both are decode steps with none between them."""
    if last.last_step is None or new.first_step is None:
        return False
    return last.kind == new.kind == "decode" and new.first_step == last.last_step + 1
