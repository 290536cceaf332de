"""Converted models that lie, with digests to match: each runs, or our own error refuses it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.model.tiny_artifact import tiny_artifact, tiny_llama

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FORGERIES = 40

# In a process of its own: a kernel that reads beyond its tensors would end it.
PROGRAM = """\
import sys
from pathlib import Path
from dashinfer_lab import LLM
from dashinfer_lab.errors import DashInferLabError
from tests.convert.forged import Forgery

original, directory, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def outcome():
    try:
        with LLM(directory, threads=1) as llm:
            config = llm.artifact.config
            for ids in ([1, 2, 3], [config.vocab_size - 1] * 40, [0] * (config.context_length - 1)):
                llm.logits(ids, positions=[len(ids) - 1])
    except DashInferLabError as error:
        return type(error).__name__
    return "ran"

for seed in range(count):
    print(seed, end=" ", flush=True)
    print(outcome() if Forgery(original, directory, seed).write() else "unwritten", flush=True)
"""


@pytest.mark.parametrize("scheme", ["fp32", "bf16", "a16w8", "a16w4"])
def test_a_forged_artifact_runs_or_is_refused(tmp_path: Path, scheme: str) -> None:
    original = tiny_artifact(tmp_path / "tiny", scheme, tiny_llama(attention_bias=True))
    given = (original.directory, tmp_path / "forged", FORGERIES)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, given)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, f"forgery {done.stdout.split()[-1]}: {done.stderr[-2000:]}"
    outcomes = Counter(line.split()[1] for line in done.stdout.splitlines())
    assert outcomes["ArtifactError"] > FORGERIES // 3
    assert outcomes["ran"] > 0
