"""What quantising costs: a map of errors by layer, a matrix's weights, what the group size does."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.quantize import GROUP_SIZES, GroupSize
from dashinfer_lab.widgets.charts import heat_map
from dashinfer_lab.widgets.controls import dropdown, row, slider, toggles
from dashinfer_lab.widgets.damage import BITS, Bits, damage
from dashinfer_lab.widgets.matrix_html import closely_html, sizes_html
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View
from dashinfer_lab.widgets.weight_samples import sample_matrices

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["QuantisationExplorer"]


class QuantisationExplorer(View):
    """Quantise samples of `model`'s matrices: a name or path (its checkpoint), or an `LLM`.

    layer, kind: the matrix looked at closely, the worst one where None.  Nothing is converted.
    """

    def __init__(self, model: str | Path | LLM, *, lang: Language | None = None) -> None:
        super().__init__("explorer.title", lang)
        samples, self._stored = sample_matrices(model)
        self._samples: Final = {(each.kind, each.layer): each for each in samples}
        self.kinds: Final = list(dict.fromkeys(each.kind for each in samples))
        self.layers: Final = sorted({each.layer for each in samples})
        self.group_size: GroupSize = 64
        self.bits: Bits = 8
        self._errors: Final[dict[tuple[GroupSize, Bits], dict[tuple[str, int], float]]] = {}
        worst = self.errors()
        self.kind, self.layer = max(worst, key=lambda key: worst[key])

    def errors(self) -> dict[tuple[str, int], float]:
        """Relative error of each matrix at the chosen group size and bits, by kind and layer."""
        chosen = (self.group_size, self.bits)
        if chosen not in self._errors:
            self._errors[chosen] = {
                key: damage(each.rows, *chosen).relative_error
                for key, each in self._samples.items()
            }
        return self._errors[chosen]

    def choose(
        self,
        *,
        layer: int | None = None,
        kind: str | None = None,
        group_size: GroupSize | None = None,
        bits: Bits | None = None,
    ) -> QuantisationExplorer:
        """Look at another matrix, group size or number of bits. Raises `ConfigError`."""
        key = (self.kind if kind is None else kind, self.layer if layer is None else layer)
        size = self.group_size if group_size is None else group_size
        width = self.bits if bits is None else bits
        if key not in self._samples or size not in GROUP_SIZES or width not in BITS:
            raise ConfigError(
                f"there is no {key[0]!r} in layer {key[1]!r} in groups of {size!r} with "
                f"{width!r} bits: matrices are {', '.join(self.kinds)}, layers {self.layers[0]} to "
                f"{self.layers[-1]}, groups {', '.join(map(str, GROUP_SIZES))}, bits 8 or 4"
            )
        if (self.kind, self.layer, self.group_size, self.bits) != (*key, size, width):
            (self.kind, self.layer), self.group_size, self.bits = key, size, width
            self.redraw()
        return self

    def __repr__(self) -> str:
        mean = np.mean(list(self.errors().values()))
        return f"<QuantisationExplorer {len(self._samples)} matrices, mean error {mean:.3%}>"

    def _controls(self) -> list[Any]:
        say, choose = self.say, self.choose
        widths = [(say("explorer.bits", bits=width), width) for width in BITS]
        bits = toggles(widths, self.bits, lambda n: choose(bits=n), 64)
        sizes = toggles(GROUP_SIZES, self.group_size, lambda n: choose(group_size=n), 56)
        kind = dropdown(say("explorer.kind"), self.kinds, self.kind, lambda n: choose(kind=n))
        layer = slider(say("explorer.layer"), self.layers, self.layer, lambda n: choose(layer=n))
        self.bound.update(bits=bits, group_size=sizes, kind=kind, layer=layer)
        return [row(bits, sizes), row(kind, layer), self.picture]

    def _body(self) -> str:
        errors, sample = self.errors(), self._samples[self.kind, self.layer]
        low, high = min(errors.values()), max(errors.values())
        worst = self._samples[max(errors, key=lambda key: errors[key])].name
        rows = len(sample.rows)
        cells = [[errors.get((kind, layer)) for layer in self.layers] for kind in self.kinds]
        chosen = (self.kinds.index(self.kind), self.layers.index(self.layer))
        intro = self.say("explorer.intro", bits=self.bits, group=self.group_size, rows=rows)
        legend = self.say("explorer.range", low=low, high=high, worst=worst)
        drawn = heat_map(self.kinds, list(map(str, self.layers)), cells, chosen)
        closely = closely_html(sample, self.group_size, self.bits, self.say)
        closely += sizes_html(sample, self.bits, self.say)
        return (
            f"<div>{escape(intro)}</div>{drawn}"
            f'<div class="dl-quiet dl-small">{escape(legend)}</div>{closely}'
            f"{note(self.say('explorer.stored', kinds=self._stored))}"
        )
