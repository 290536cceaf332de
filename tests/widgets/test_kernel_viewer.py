from __future__ import annotations

from html import escape

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.lower.kernel_table import kernel_table
from dashinfer_lab.profiling import OpProfile
from dashinfer_lab.widgets import KernelViewer
from jit_kernels.errors import TraceError


def test_every_kernel_has_its_formula_and_source_without_a_model() -> None:
    view = KernelViewer(lang="en")

    for name, kernel in kernel_table().items():
        view.choose(kernel=name)
        assert view.text == kernel.source
        assert escape(kernel.formula) in view.html
    assert set(view.kernels) == set(kernel_table())


def test_without_a_model_a_kernel_with_constants_says_what_its_assembly_needs() -> None:
    view = KernelViewer(lang="en").choose(kernel="attention", view="asm")

    assert "specialised by head_dim, heads_per_kv" in view.html
    with pytest.raises(TraceError, match="head_dim"):
        _ = view.text


@pytest.mark.parametrize("isa", ["avx512", "avx2", "x86-64"])
def test_a_model_s_kernels_are_shown_for_each_instruction_set(tiny: LLM, isa: str) -> None:
    view = KernelViewer(tiny, lang="en").choose(kernel="rmsnorm_prepare", view="asm", isa=isa)

    widest = {"avx512": "%zmm", "avx2": "%ymm", "x86-64": "%xmm"}[isa]
    assert widest in view.text or (isa == "avx512" and "%ymm" in view.text)
    assert (isa == "x86-64") is ("%ymm" not in view.text)


def test_the_controls_choose_kernel_variant_and_view(tiny: LLM) -> None:
    view = KernelViewer(tiny, lang="en")
    pickers, turn, _ = view.widget.children[1:]
    kernel, variant, _ = pickers.children

    kernel.value = "linear_u8"
    turn.value = "ir"
    variant.value = variant.options[1]
    chosen = view.picture.value
    kernel.value = "embedding"

    assert view.kernel == "embedding"
    assert view.variant == variant.value == "model.embed_tokens"
    assert "define" in chosen
    assert "o_proj" in chosen
    view.close()


def test_the_controls_follow_what_is_chosen_by_a_call(tiny: LLM) -> None:
    view = KernelViewer(tiny, lang="en")
    pickers, turn, _ = view.widget.children[1:]

    view.choose(kernel="attention", view="ir", isa="avx2")

    assert [each.value for each in pickers.children] == ["attention", view.variant, "avx2"]
    assert turn.value == "ir"
    assert "define" in view.picture.value
    view.close()


def test_a_call_costs_what_the_profile_counts(tiny: LLM) -> None:
    view = KernelViewer(tiny, lang="en").choose(kernel="rope_append")
    config = tiny.config

    flops = 3 * (config.num_heads + config.num_kv_heads) * config.head_dim
    assert f"<td>{flops / 1e3:.1f} k</td>" in view.html
    assert f"<td>{128 * flops / 1e3:.1f} k</td>" in view.html


def test_a_profile_brings_its_times(profile: OpProfile) -> None:
    view = KernelViewer(profile, lang="en").choose(kernel="attention")

    (row,) = [row for row in profile.decode.by_operator() if row.opname == "attention"]
    assert f"{row.count} calls, {row.ave_ms:.3f} ms each" in view.html


def test_what_there_is_not_is_refused_by_name(tiny: LLM) -> None:
    view = KernelViewer(tiny)

    with pytest.raises(ConfigError, match="sse9.*avx512"):
        view.choose(isa="sse9")
    with pytest.raises(ConfigError, match="no kernel 'gemm'.*linear_u8"):
        view.choose(kernel="gemm")
