from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab.profiling import OpProfile

Event = dict[str, Any]


@pytest.fixture(scope="module")
def events(batch: OpProfile, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """As another program reads them."""
    path: Path = tmp_path_factory.mktemp("trace") / "run.trace.json"
    batch.save(path)
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def slices(events: list[Event], category: str) -> list[Event]:
    return [e for e in events if e["ph"] == "X" and e["cat"] == category]


def end(event: Event) -> float:
    return event["ts"] + event["dur"]


def inside(inner: Event, outer: Event) -> bool:
    # Nanoseconds written as microseconds: a float's rounding is far below one.
    return outer["ts"] - 1e-4 <= inner["ts"] and end(inner) <= end(outer) + 1e-4


def test_every_event_has_what_its_kind_needs(events: list[Event]) -> None:
    needed = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
        "M": {"name", "ts", "pid", "tid", "args"},
        "C": {"name", "ts", "pid", "args"},
    }
    for event in events:
        assert set(event) == needed[event["ph"]] | {"ph"}
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
    assert min(event["ts"] for event in events if event["ph"] == "X") == 0


def test_steps_hold_layers_and_layers_hold_operations(
    batch: OpProfile, events: list[Event]
) -> None:
    steps, layers = slices(events, "step"), slices(events, "layer")
    operations = slices(events, "operator")

    assert len(steps) == len(batch.steps)
    assert len(layers) == 2 * len(steps)
    assert len(operations) == len(batch.ops) * len(steps)
    for inner, outers in ((layers, steps), (slices(events, "engine"), steps), (operations, steps)):
        assert all(sum(inside(each, outer) for outer in outers) == 1 for each in inner)
    in_layers = Counter(any(inside(each, layer) for layer in layers) for each in operations)
    assert in_layers[True] >= len(steps) * sum(op.layer is not None for op in batch.ops)


def test_slices_of_a_track_nest_and_never_cross(events: list[Event]) -> None:
    tracks: dict[tuple[int, int], list[Event]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        open_slices: list[Event] = []
        for event in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            while open_slices and end(open_slices[-1]) <= event["ts"] + 1e-4:
                open_slices.pop()
            assert not open_slices or inside(event, open_slices[-1])
            open_slices.append(event)


def test_each_request_has_a_track_of_queue_prefill_and_decode(
    batch: OpProfile, events: list[Event]
) -> None:
    tracks: dict[int, list[str]] = {}
    for event in slices(events, "request"):
        tracks.setdefault(event["tid"], []).append(event["name"])
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}

    assert len(tracks) == len(batch.requests()) == 3
    for track, kinds in tracks.items():
        assert kinds == ["queue", "prefill", *["decode"] * 4]
        assert names[track] == f"request {track - 10}"


def test_operations_say_their_bytes_and_rates(events: list[Event]) -> None:
    products = [e for e in slices(events, "operator") if e["name"] == "linear_u8"]

    assert products
    for event in products:
        if event["dur"]:
            rate = event["args"]["bytes"] / (event["dur"] * 1e3)
            assert event["args"]["GB/s"] == pytest.approx(rate, rel=1e-3, abs=1e-3)


def test_timelines_are_in_order_and_account_for_the_tokens(batch: OpProfile) -> None:
    for line in batch.requests():
        assert [each.kind for each in line.stretches] == ["queue", "prefill", "decode"]
        assert (line.num_tokens("prefill"), line.num_tokens("decode")) == (40, 4)
        for one, other in zip(line.stretches, line.stretches[1:], strict=False):
            assert one.begin_seconds <= one.end_seconds <= other.begin_seconds
        assert line.seconds("queue") >= 0
