"""Conversion streams: memory does not grow with the checkpoint, nor with its largest tensor."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.tiny_models import CONFIG, weights

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HIDDEN, INNER, VOCAB = 2048, 5632, 49152
MOST_BYTES = 300 << 20

PROGRAM = """\
import resource, sys
from pathlib import Path
from dashinfer_lab.convert import convert
from dashinfer_lab.hub import open_checkpoint
from dashinfer_lab.convert import converter
from dashinfer_lab.graph import serialize
from dashinfer_lab import models
import onnx_ir

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

before = peak()
with open_checkpoint(Path(sys.argv[1])) as checkpoint:
    convert(checkpoint, Path(sys.argv[2]), sys.argv[3])
print(peak() - before)
"""


def _write_large(directory: Path) -> int:
    """Write a checkpoint of holes, which reads as zeros and takes no room; return its bytes."""
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INNER, "vocab_size": VOCAB}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    wider = {64: HIDDEN, 96: INNER, 291: VOCAB, 32: 1024}
    header: dict[str, object] = {}
    end = 0
    for name, tensor in weights().items():
        shape = [wider[size] for size in tensor.shape]
        begin, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({**CONFIG, **sizes, **heads}))
    with (directory / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return end


@pytest.mark.parametrize("scheme", ["a16w8", "bf16"])
def test_converting_takes_less_memory_than_its_largest_tensor(tmp_path: Path, scheme: str) -> None:
    num_bytes = _write_large(tmp_path / "large")
    assert num_bytes > 2 * MOST_BYTES
    assert 4 * VOCAB * HIDDEN > MOST_BYTES

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "large"), str(tmp_path / "out"), scheme],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= MOST_BYTES
