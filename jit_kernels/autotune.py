"""Which of several schedules is quickest on this machine: fair measuring, and a store of choices.

Candidates run in turns, so that whatever else the machine does meets all of them; one replaces the
default only where it wins clearly. What was chosen lies beside the object cache, under everything
it depends on. Knows nothing of models; a choice changes times, never results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jit_kernels.compiler.atomic import write_atomically
from jit_kernels.compiler.fingerprint import source_fingerprint
from jit_kernels.compiler.target import llvm_version
from jit_kernels.errors import TraceError
from jit_kernels.isa import Isa
from jit_kernels.kernels.linear_schedule import Schedule, row_tiles
from jit_kernels.runtime.topology import processor_name

__all__ = ["MARGIN", "Choice", "ChoiceStore", "gain", "in_turns", "machine_parts", "winner"]

MARGIN: Final = 0.05
"""How much less time than the default a candidate must take to replace it."""
_LEAST_ROUNDS: Final = 5
_MOST_ROUNDS: Final = 25
_ROUNDS_WON: Final = 0.75

Seconds = Mapping[str, float]


def in_turns(
    candidates: Sequence[Callable[[], Seconds]], seconds: float, clock: Callable[[], float]
) -> dict[str, NDArray[np.float64]]:
    """Times [rounds, candidates] under each name that the candidates give theirs.

    A round runs every candidate once, each round beginning with another. Rounds end when `seconds`
    are over, but not before a few, nor after 25.
    """
    for run in candidates:
        run()  # the first time touches memory that later ones find warm
    rounds: list[list[Seconds]] = []
    end = clock() + seconds
    while len(rounds) < _LEAST_ROUNDS or (clock() < end and len(rounds) < _MOST_ROUNDS):
        first = len(rounds) % len(candidates)
        order = [*range(first, len(candidates)), *range(first)]
        taken = {which: candidates[which]() for which in order}
        rounds.append([taken[which] for which in range(len(candidates))])
    return {
        name: np.array([[taken[name] for taken in each] for each in rounds])
        for name in rounds[0][0]
    }


def gain(times: NDArray[np.float64], candidate: int) -> float:
    """How many times quicker than the first a candidate is: the median of all rounds."""
    return float(np.median(times[:, 0] / times[:, candidate]))


def winner(times: NDArray[np.float64]) -> int:
    """The quickest candidate; the first, unless one takes less time by `MARGIN` almost always."""
    shares = times / times[:, :1]
    best = int(np.median(shares, axis=0).argmin())
    clear = np.median(shares[:, best]) < 1 - MARGIN
    steady = (shares[:, best] < 1).mean() >= _ROUNDS_WON
    return best if clear and steady else 0


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows of a strip, and the word of a `Schedule` for each kind of linear layer by its name.

    gains: how many times quicker than the default, by kind and number of rows, as it was measured.
    """

    row_tile: int
    schedules: Mapping[str, str]
    gains: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Names and values, for JSON."""
        return asdict(self)


class ChoiceStore:
    """Choices on disk, a file each; what is damaged or belongs to another machine is not found."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, parts: Sequence[str], isa: Isa) -> Choice | None:
        """The choice that was made for `parts`, if it is whole and possible on `isa`."""
        try:
            digest, _, text = self._path(parts).read_text(encoding="utf-8").partition("\n")
            stored: dict[str, Any] = json.loads(text)
            intact = _digest(text) == digest and stored["made_for"] == list(parts)
            return _checked(stored["choice"], isa) if intact else None
        except (OSError, ValueError, KeyError, TypeError, TraceError):
            return None

    def write(self, parts: Sequence[str], choice: Choice) -> bool:
        """Keep a choice; False where the directory cannot be written."""
        text = json.dumps({"made_for": list(parts), "choice": choice.as_dict()}, indent=1)
        try:
            write_atomically(self._path(parts), f"{_digest(text)}\n{text}".encode())
        except OSError:
            return False
        return True

    def __len__(self) -> int:
        return sum(1 for _ in self._directory.glob("[!.]*.json"))

    def _path(self, parts: Sequence[str]) -> Path:
        return self._directory / f"{_digest(chr(0).join(parts))[:24]}.json"


def machine_parts(isa: Isa, num_threads: int) -> tuple[str, ...]:
    """What a choice depends on beside the work: processor, instructions, threads, our sources."""
    return (
        processor_name(),
        isa.cpu,
        isa.features,
        repr(isa),
        llvm_version(),
        f"{num_threads} threads",
        source_fingerprint(Path(__file__).parent),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checked(stored: Mapping[str, Any], isa: Isa) -> Choice | None:
    """The choice as read; raises for what is no choice, None where its strips are impossible."""
    words = {str(name): str(word) for name, word in stored["schedules"].items()}
    for word in words.values():
        Schedule.of(isa, word)
    gains = {str(name): float(value) for name, value in stored["gains"].items()}
    tile: Any = stored["row_tile"]
    return Choice(int(tile), words, gains) if tile in row_tiles(isa) else None
