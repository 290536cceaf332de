"""Write tests/expected/families/ from transformers in fp32: run by hand, in torch's venv:
`python -m tests.oracle.generate_families [part of a case's name]`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.expected.families import FamilyLogits, family_file
from tests.model.family_cases import CASES, token_ids
from tests.oracle.generate_expected import write_arrays
from tests.oracle.theirs import transformers_model
from tests.oracle.witness import whole_logits


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for case in CASES:
        if wanted not in case.name:
            continue
        with tempfile.TemporaryDirectory() as directory:
            model = transformers_model(case, Path(directory))
            kept = FamilyLogits.of(whole_logits(model, token_ids()))
        arrays: dict[str, NDArray[np.generic]] = {
            "argmax": kept.argmax.astype(np.uint16),
            "row_max_abs": kept.row_max_abs,
            "samples": kept.samples,
        }
        write_arrays(family_file(case.name), arrays)


if __name__ == "__main__":
    main()
