"""One colour an operator, the same in every picture of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashinfer_lab.profiling.picture import Palette

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile

__all__ = ["operator_colours"]


def operator_colours(profile: OpProfile, palette: Palette) -> dict[str, str]:
    """Colours by kernel: those that took the largest share of a phase get their own, the rest grey.

    A share of a phase, not time: a long decode would hide what prefill does.
    """
    shares: dict[str, float] = {}
    for phase in profile.phases:
        for row in phase.by_operator():
            shares[row.opname] = max(shares.get(row.opname, 0.0), row.percentage)
    ranked = sorted(shares, key=lambda name: -shares[name])
    own = dict(zip(ranked, palette.series, strict=False))
    return {name: own.get(name, palette.quiet) for name in ranked}
