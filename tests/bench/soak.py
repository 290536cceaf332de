"""Random requests on a tiny model for as long as asked: nothing may grow, no answer be another's.

    python -m tests.bench.soak [--minutes 30] [--seed 0]

Prompts that share heads, priorities, cancellations, deadlines, nonsense, on a cache that is too
small. Every answer is held to its solo run. Ends with 1 where memory or threads grew, or a page was
left behind.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from dashinfer_lab import LLM
from dashinfer_lab.engine import EngineOptions
from tests.model.test_random_requests import CACHE_BYTES, Crowd, Solo
from tests.model.tiny_artifact import tiny_artifact

_A_BATCH: Final = 40
_MOST_GROWTH: Final = 20e6
"""Bytes between the second quarter and the last: the allocator's, not a leak of 2,000 requests."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process holds while no request is open."""

    seconds: float
    resident_bytes: int
    num_threads: int
    num_pages_used: int


def soak(directory: Path, minutes: float, seed: int) -> list[Sample]:
    """Ask until the time is over; a sample after every batch of requests."""
    artifact = tiny_artifact(directory / "tiny", "a16w8")
    alone = EngineOptions(enable_prefix_caching=False)
    crowded = EngineOptions(max_running=12, max_chunk_tokens=50)
    begin = time.monotonic()
    samples: list[Sample] = []
    with (
        LLM(artifact.directory, threads=1, engine=alone) as one,
        LLM(artifact.directory, threads=2, kv_cache_bytes=CACHE_BYTES, engine=crowded) as many,
    ):
        crowd = Crowd(many, Solo(one), seed)
        while time.monotonic() < begin + 60 * minutes:
            for _ in range(_A_BATCH):
                crowd.ask()
            crowd.check_all()
            many.logits([1])  # all steps before it are done with
            samples.append(_sample(many, time.monotonic() - begin))
            _tell(crowd, samples[-1])
    return samples


def faults(samples: list[Sample]) -> list[str]:
    """What grew, or was left; quarters are compared by their medians."""
    quarter = len(samples) // 4
    if quarter < 1:
        return [f"only {len(samples)} batches of {_A_BATCH} requests were served: soak for longer"]
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    growth = median(s.resident_bytes for s in late) - median(s.resident_bytes for s in early)
    found: list[str] = []
    if growth > _MOST_GROWTH:
        found.append(f"memory grew by {growth / 1e6:.1f} MB")
    if max(s.num_threads for s in late) > min(s.num_threads for s in early):
        found.append(f"{late[-1].num_threads} threads run, and {early[0].num_threads} did")
    if any(s.num_pages_used for s in samples):
        found.append("pages were in use while no request was open")
    return found


def _sample(llm: LLM, seconds: float) -> Sample:
    gc.collect()
    resident = psutil.Process().memory_info().rss
    used = llm.engine.stats().num_pages_used
    return Sample(seconds, resident, threading.active_count(), used)


def _tell(crowd: Crowd, sample: Sample) -> None:
    print(  # noqa: T201  # a bench prints
        f"\r{sample.seconds:6.0f} s  {crowd.num_checked:7} answers as alone  "
        f"{crowd.num_refused:6} refused  {sample.resident_bytes / 1e6:6.1f} MB  "
        f"{sample.num_threads} threads",
        end="",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = faults(soak(Path(directory), asked.minutes, asked.seed))
    print()  # noqa: T201  # behind the line that was written over
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
