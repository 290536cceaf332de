"""What follows the last attention is computed for rows that logits are asked of, and no others.

A row's later values depend on that row alone. Of a prompt's chunk logits are asked of its last row,
or of none: most of the last layer is then left out, as llama.cpp leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dashinfer_lab.lower.ops import PREPARED_BY_READERS, Op

__all__ = ["keep_logit_rows"]


def keep_logit_rows(ops: Sequence[Op]) -> list[Op]:
    """Gather what is read after the last attention and made before, and compute on the rest."""
    attentions = [position for position, op in enumerate(ops) if op.kind == "paged_attention"]
    first = attentions[-1] + 1 if attentions else len(ops)
    kept = _KeptRows({output: op for op in ops[:first] for output in op.outputs})
    for op in ops[first:]:
        kept.add(op)
    return [*ops[:first], *kept.ops]


class _KeptRows:
    """Operations on the rows that are left, and what they read by its name among all rows."""

    def __init__(self, makers: Mapping[str, Op]) -> None:
        self._makers = makers
        self._names: dict[str, str] = {}
        self.ops: list[Op] = []

    def add(self, op: Op) -> None:
        """Append an operation, after what gathers its inputs."""
        inputs = tuple(self._kept(value, op.layer) for value in op.inputs)
        self.ops.append(replace(op, inputs=inputs, rows="num_logit_rows"))

    def _kept(self, value: str, layer: int | None) -> str:
        """The name of a value's rows that are left, gathered in `layer` if they were not yet."""
        maker = self._makers.get(value)
        if maker is None:
            return value
        if value not in self._names:
            self._names[value] = name = f"{value}.kept"
            if maker.kind in PREPARED_BY_READERS:  # it lies nowhere: it is made again, of fewer
                self.add(replace(maker, outputs=(name,)))
            else:
                gather = Op("gather_rows", name, (value,), (name,), {}, layer)
                self.ops.append(replace(gather, rows="num_logit_rows"))
        return self._names[value]
