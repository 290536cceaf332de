from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.guarded import guarded, guarded_before

ROOT = Path(__file__).resolve().parents[2]
SIZES = [0, 1, 7, 1003, 4096, 4097]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [guarded, guarded_before])
def test_a_guarded_array_holds_what_it_was_given(place: object, size: int) -> None:
    array = np.arange(size, dtype=np.float32).reshape(1, size)

    assert callable(place)
    copy = place(array)
    assert np.array_equal(copy, array)
    assert copy.flags.writeable


@pytest.mark.parametrize(
    ("place", "offset", "survives"),
    [
        ("guarded", 27, True),
        ("guarded", 28, False),
        ("guarded_before", 0, True),
        ("guarded_before", -1, False),
    ],
)
def test_one_byte_too_far_ends_the_process(place: str, offset: int, survives: bool) -> None:
    program = (
        "import ctypes, numpy as np\n"
        f"from tests.kernels.guarded import {place}\n"
        f"array = {place}(np.ones(7, np.float32))\n"
        f"ctypes.string_at(array.ctypes.data + {offset}, 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)

    assert done.returncode == (0 if survives else -signal.SIGSEGV)
