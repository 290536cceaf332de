from __future__ import annotations

import json
from itertools import combinations

from dashinfer_lab import LLM
from dashinfer_lab.profiling import MemoryMap, OpProfile


def memory_of(profile: OpProfile) -> MemoryMap:
    assert profile.memory is not None
    return profile.memory


def test_the_parts_are_those_that_the_model_reports(llm: LLM, batch: OpProfile) -> None:
    report, parts = llm.memory(), memory_of(batch).parts()

    assert parts["kv"] == report.kv_bytes
    assert parts["arena"] + parts["workspaces"] + parts["step"] == report.arena_bytes
    # The file pads between tensors.
    assert 0.9 * report.weight_bytes <= parts["weights"] <= report.weight_bytes


def test_weights_are_told_by_layer(batch: OpProfile) -> None:
    memory = memory_of(batch)
    sizes = memory.weights_by_layer()

    assert set(sizes) == {0, 1, None}
    assert sizes[0] == sizes[1] > 0
    assert sum(sizes.values()) == memory.weight_bytes


def test_buffers_alive_together_share_no_byte(batch: OpProfile) -> None:
    memory = memory_of(batch)
    assert memory.arena_bytes < memory.buffer_bytes
    for one, other in combinations(memory.arena, 2):
        # A buffer that takes over another's in place meets it in one operation.
        together = one.first_op < other.last_op and other.first_op < one.last_op
        apart = (
            one.offset + one.num_bytes <= other.offset
            or other.offset + other.num_bytes <= one.offset
        )
        assert apart or not together
    assert all(b.offset + b.num_bytes <= memory.arena_bytes for b in memory.arena)


def test_pages_in_use_belong_to_one_request_each(batch: OpProfile) -> None:
    memory = memory_of(batch)
    pages = [page for _, owned in batch.page_owners for page in owned]

    assert len(set(pages)) == len(pages)
    assert all(0 <= page < memory.num_pages for page in pages)
    # 40 prompt tokens are two pages of 32 for each request that was computed together.
    assert {len(owned) for _, owned in batch.page_owners} <= {1, 2}


def test_the_map_is_data(batch: OpProfile) -> None:
    data = memory_of(batch).as_dict()

    assert json.loads(json.dumps(data)) == data
    assert sum(each["bytes"] for each in data["weights"]) == data["bytes"]["weights"]
