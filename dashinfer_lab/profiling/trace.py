"""A profile as a Chrome trace: opens in Perfetto (ui.perfetto.dev) and chrome://tracing.

Worker 0's operations lie one after another from the program's start; `fork_join` is what is left
of the step's foreign call. Times are microseconds from the first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from dashinfer_lab.profiling.op_profile import OpProfile
from dashinfer_lab.profiling.steps import StepTimes
from dashinfer_lab.profiling.timeline import request_timelines
from dashinfer_lab.profiling.work import ProfiledOp, work_of

__all__ = ["chrome_trace"]

_ENGINE: Final = 1
_REQUESTS: Final = 2
# A track of its process's own number would be shown first, as its main thread.
_FIRST_TRACK: Final = 10
_WORKER: Final = _FIRST_TRACK
Event = dict[str, Any]


def chrome_trace(profile: OpProfile) -> dict[str, Any]:
    """Return {"traceEvents": [...], ...}: the engine's steps, and each request as a track."""
    timelines = request_timelines(profile.steps, merge_decode=False)
    begins = [step.begin_seconds for step in profile.steps]
    begins += [each.begin_seconds for line in timelines for each in line.stretches]
    origin = min(begins, default=0.0)
    events: list[Event] = [
        _name("process_name", _ENGINE, 0, "engine"),
        _name("thread_name", _ENGINE, _WORKER, "steps (worker 0)"),
        _name("process_name", _REQUESTS, 0, "requests"),
    ]
    for index, step in enumerate(profile.steps):
        events.extend(_step(profile.ops, step, index, origin))
    for line in timelines:
        track = _FIRST_TRACK + line.request_id
        events.append(_name("thread_name", _REQUESTS, track, f"request {line.request_id}"))
        for each in line.stretches:
            details = {"tokens": each.num_tokens, "step": each.first_step}
            begin, end = _ns(each.begin_seconds - origin), _ns(each.end_seconds - origin)
            events.append(_slice(each.kind, begin, end, _REQUESTS, track, "request", details))
    machine = profile.machine
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {} if machine is None else {"profile": str(machine)},
    }


def _step(
    ops: tuple[ProfiledOp, ...], step: StepTimes, index: int, origin: float
) -> Iterator[Event]:
    """The step, inside it inputs, layers with their operations, the join, and results."""
    begin = _ns(step.begin_seconds - origin)
    cursor = begin + _ns(step.input_seconds)
    inner = [_engine_slice("step_inputs", begin, cursor, "engine", {})]
    durations = [_ns(float(seconds)) for seconds in step.op_seconds]
    timed = list(zip(ops, durations, strict=True))
    for layer, members in groupby(timed, key=lambda pair: pair[0].layer):
        found = list(_operations(members, step, cursor))
        end = cursor + sum(event[1] for event in found)
        if layer is not None:
            inner.append(_engine_slice(f"layer {layer}", cursor, end, "layer", {"layer": layer}))
        inner.extend(event for event, _ in found)
        cursor = end
    computed = max(cursor, begin + _ns(step.input_seconds) + _ns(step.compute_seconds))
    inner.append(_engine_slice("fork_join", cursor, computed, "engine", {}))
    done = computed + _ns(step.result_seconds)
    inner.append(_engine_slice("step_results", computed, done, "engine", {}))
    details = {"step": index, "tokens": step.num_tokens, "requests": len(step.shape.chunks)}
    end = max(done, begin + _ns(step.wall_seconds))
    yield _engine_slice(f"{step.phase} step", begin, end, "step", details)
    yield from inner
    counts = {"requests": len(step.shape.chunks), "tokens": step.num_tokens}
    yield {"name": "step", "ph": "C", "ts": begin / 1e3, "pid": _ENGINE, "args": counts}


def _operations(
    members: Iterable[tuple[ProfiledOp, int]], step: StepTimes, cursor: int
) -> Iterator[tuple[Event, int]]:
    for op, duration in members:
        details: dict[str, Any] = {"name": op.name}
        work = work_of(op, step.shape)
        if work is not None and duration:
            details |= {
                "bytes": work.num_bytes,
                "flops": work.flops,
                "GB/s": round(work.num_bytes / duration, 3),
                "GFLOP/s": round(work.flops / duration, 3),
            }
        yield _engine_slice(op.kernel, cursor, cursor + duration, "operator", details), duration
        cursor += duration


def _engine_slice(name: str, begin: int, end: int, category: str, details: dict[str, Any]) -> Event:
    return _slice(name, begin, end, _ENGINE, _WORKER, category, details)


def _slice(
    name: str, begin: int, end: int, process: int, track: int, category: str, args: dict[str, Any]
) -> Event:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": begin / 1e3,
        "dur": (end - begin) / 1e3,
        "pid": process,
        "tid": track,
        "args": args,
    }


def _name(kind: str, process: int, track: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "ts": 0, "pid": process, "tid": track, "args": {"name": name}}


def _ns(seconds: float) -> int:
    """Whole nanoseconds: sums of these are exact, so that inner slices never stick out."""
    return round(seconds * 1e9)
