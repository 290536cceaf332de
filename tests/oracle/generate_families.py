"""Write tests/expected/families.npz from transformers in fp32: run by hand, in torch's venv:
`python -m tests.oracle.generate_families`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.expected.families import FAMILIES_FILE, FamilyLogits
from tests.model.family_cases import CASES, token_ids
from tests.oracle.generate_expected import write_arrays
from tests.oracle.theirs import transformers_model
from tests.oracle.witness import whole_logits


def main() -> None:
    arrays: dict[str, NDArray[np.generic]] = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as directory:
            model = transformers_model(case, Path(directory))
            kept = FamilyLogits.of(whole_logits(model, token_ids()))
        arrays[f"{case.name}.argmax"] = kept.argmax.astype(np.uint16)
        arrays[f"{case.name}.row_max_abs"] = kept.row_max_abs
        arrays[f"{case.name}.samples"] = kept.samples
    write_arrays(FAMILIES_FILE, arrays)


if __name__ == "__main__":
    main()
