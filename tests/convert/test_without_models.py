"""A converted model needs no `dashinfer_lab.models`: its graph file says all there is to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dashinfer_lab import LLM
from tests.model.tiny_artifact import tiny_artifact

# None in sys.modules makes every import of that name fail.
PROGRAM = """\
import sys
import numpy as np
sys.modules["dashinfer_lab.models"] = None
from dashinfer_lab import LLM
with LLM(sys.argv[1]) as llm:
    np.save(sys.argv[2], llm.logits([1, 20, 300]))
"""


def test_a_converted_model_runs_where_models_cannot_be_imported(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", "a16w8")
    saved = tmp_path / "logits.npy"
    # A cache with no plan in it, so that the graph is read here, too.
    environment = {**os.environ, "DASHINFER_LAB_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(artifact.directory), str(saved)],
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    with LLM(artifact.directory) as llm:
        np.testing.assert_array_equal(np.load(saved), llm.logits([1, 20, 300]))
