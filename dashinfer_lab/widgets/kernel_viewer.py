"""A kernel from formula to assembly, and what a call of it costs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.profiling import OpProfile, ProfiledOp
from dashinfer_lab.widgets.controls import dropdown, row, toggles
from dashinfer_lab.widgets.kernel_facts import VIEWS, KernelView, ops_of, text_of, variants
from dashinfer_lab.widgets.kernel_html import code_html, cost_html, measured_html
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View, require

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from jit_kernels.kernel import Kernel

__all__ = ["KernelViewer"]


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
        self.variant = self.variants[0]

    def choose(
        self,
        *,
        kernel: str | None = None,
        view: KernelView | None = None,
        isa: str | None = None,
        variant: str | None = None,
    ) -> KernelViewer:
        """Show something else, as the controls do. Raises `ConfigError` naming what there is."""
        require("kernel", kernel, self.kernels)
        require("view", view, VIEWS)
        require("isa", isa, self.isas)
        before = self.kernel, self.variant, self.view, self.isa
        self.view, self.isa = view or self.view, isa or self.isa
        if kernel is not None and kernel != self.kernel:
            self.kernel = kernel
            self.variant = self.variants[0]
        require("variant", variant, self.variants)
        self.variant = variant or self.variant
        if (self.kernel, self.variant, self.view, self.isa) != before:
            self._draw()
        return self

    @property
    def text(self) -> str:
        """What is shown now: source, IR or assembly, whole. Raises `TraceError`."""
        return text_of(self._chosen, self.view, self.isa, self._op)

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

    def _controls(self) -> list[Any]:
        say, choose, names = self.say, self.choose, self.variants
        views = [(say(f"kernel.{view}"), view) for view in VIEWS]
        kernel = dropdown(
            say("kernel.kernel"), self.kernels, self.kernel, lambda n: choose(kernel=n)
        )
        isa = dropdown(say("kernel.isa"), self.isas, self.isa, lambda n: choose(isa=n))
        self._variants = dropdown(say("kernel.variant"), names, self.variant, self._choose_variant)
        turn = toggles(views, self.view, lambda new: choose(view=new), 110)
        self.bound.update(kernel=kernel, variant=self._variants, isa=isa, view=turn)
        return [row(kernel, self._variants, isa), turn, self.picture]

    def _choose_variant(self, new: str | None) -> None:
        if new in variants(self._ops, self.kernel) and new != self.variant:
            self.choose(variant=new)

    def _draw(self) -> None:
        if self.live and list(self._variants.options) != self.variants:
            self._variants.options = self.variants
        self.redraw()

    def _body(self) -> str:
        kernel, op = self._chosen, self._op
        formula = f'<div class="dl-note">{escape(kernel.formula)}</div>'
        cost = cost_html(op, self.say) + measured_html(self._profile, self.kernel, self.say)
        if self.view != "source" and op is None and kernel.constants:
            names = ", ".join(kernel.constants)
            missing = self.say("kernel.missing", kernel=self.kernel, names=names)
            return formula + note(missing, "warn") + cost
        return formula + code_html(self.text, self.view, self.kernel, self.say) + cost
