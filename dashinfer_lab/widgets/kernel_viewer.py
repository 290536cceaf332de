"""A kernel from formula to assembly, and what a call of it costs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling import OpProfile, ProfiledOp
from dashinfer_lab.widgets.controls import dropdown, row, toggles
from dashinfer_lab.widgets.kernel_facts import (
    VIEWS,
    KernelView,
    coloured,
    ops_of,
    text_of,
    variants,
)
from dashinfer_lab.widgets.kernel_html import cost_html, measured_html
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from jit_kernels.kernel import Kernel

__all__ = ["KernelViewer"]

_MOST_LINES: Final = 1500


class KernelViewer(View):
    """Show the kernels of `source`: a loaded `LLM`, a profile with its times, or none at all.

    Without a source, a kernel that takes constants has its formula and Python alone.
    """

    def __init__(
        self, source: LLM | OpProfile | None = None, *, lang: Language | None = None
    ) -> None:
        super().__init__("kernel.title", lang)
        from dashinfer_lab.lower.kernel_table import kernel_table
        from jit_kernels.isa import ISA_NAMES, detect

        self._table: Final = kernel_table()
        self._ops: Final = ops_of(source)
        self._profile: Final = source if isinstance(source, OpProfile) else None
        used = dict.fromkeys(op.kernel for op in self._ops)
        self.kernels: Final = [name for name in used if name in self._table] or list(self._table)
        self.isas: Final = list(ISA_NAMES)
        self.isa = detect().name
        self.view: KernelView = "source"
        self.kernel = "linear_u8" if "linear_u8" in self.kernels else self.kernels[0]
        self.variant = self._first_variant()

    def choose(
        self,
        *,
        kernel: str | None = None,
        view: KernelView | None = None,
        isa: str | None = None,
        variant: str | None = None,
    ) -> KernelViewer:
        """Show something else, as the controls do. Raises `ConfigError` naming what there is."""
        _require("kernel", kernel, self.kernels)
        _require("view", view, VIEWS)
        _require("isa", isa, self.isas)
        self.view, self.isa = view or self.view, isa or self.isa
        if kernel is not None and kernel != self.kernel:
            self.kernel = kernel
            self.variant = self._first_variant()
        _require("variant", variant, self.variants)
        self.variant = variant or self.variant
        self._draw()
        return self

    @property
    def text(self) -> str:
        """What is shown now: source, IR or assembly, whole. Raises `TraceError`."""
        from jit_kernels.isa import detect, record

        isa = detect() if self.isa == detect().name else record(self.isa)
        return text_of(self._chosen, self.view, isa, self._op)

    @property
    def variants(self) -> list[str]:
        """Operations whose specialisations of this kernel differ, by their names."""
        return list(variants(self._ops, self.kernel)) or [self.say("kernel.any")]

    @property
    def _chosen(self) -> Kernel:
        return self._table[self.kernel]

    @property
    def _op(self) -> ProfiledOp | None:
        return variants(self._ops, self.kernel).get(self.variant)

    def __repr__(self) -> str:
        return f"<KernelViewer {self.kernel}, {self.view} for {self.isa}: {self._chosen.formula}>"

    def _first_variant(self) -> str:
        return self.variants[0]

    def _controls(self) -> list[Any]:
        say, choose = self.say, self.choose
        views = [(say(f"kernel.{view}"), view) for view in VIEWS]
        self._variants = dropdown(
            say("kernel.variant"), self.variants, self.variant, self._variant_chosen
        )
        return [
            row(
                dropdown(
                    say("kernel.kernel"), self.kernels, self.kernel, lambda n: choose(kernel=n)
                ),
                self._variants,
                dropdown(say("kernel.isa"), self.isas, self.isa, lambda n: choose(isa=n)),
            ),
            toggles(views, self.view, lambda new: choose(view=new), 110),
            self.picture,
        ]

    def _variant_chosen(self, new: str | None) -> None:
        if new in variants(self._ops, self.kernel) and new != self.variant:
            self.choose(variant=new)

    def _draw(self) -> None:
        if self.live and list(self._variants.options) != self.variants:
            self._variants.options = self.variants
        self.redraw()

    def _from_function(self, lines: list[str]) -> list[str]:
        """Assembly without the constants that stand before the function."""
        labels = (i for i, line in enumerate(lines) if line.startswith(f"{self.kernel}"))
        return lines[next(labels, 0) :] if self.view == "asm" else lines

    def _body(self) -> str:
        formula = f'<div class="dl-note">{escape(self._chosen.formula)}</div>'
        cost = cost_html(self._op, self.say) + measured_html(self._profile, self.kernel, self.say)
        if self.view != "source" and self._op is None and self._chosen.constants:
            names = ", ".join(self._chosen.constants)
            missing = self.say("kernel.missing", kernel=self.kernel, names=names)
            return formula + note(missing, "warn") + cost
        lines = self._from_function(self.text.splitlines())
        shown = coloured("\n".join(lines[:_MOST_LINES]), self.view)
        key = "kernel.cut" if len(lines) > _MOST_LINES else "kernel.lines"
        count = escape(self.say(key, count=len(lines), shown=_MOST_LINES))
        code = f'<div class="dl-code">{shown}</div><div class="dl-quiet dl-small">{count}</div>'
        return formula + code + cost


def _require(name: str, given: str | None, known: Any) -> None:
    if given is not None and given not in known:
        raise ConfigError(f"there is no {name} {given!r:.80}; there are {', '.join(known)}")
