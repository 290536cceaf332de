"""What holds for all kernels a model is made of, as each is specialised there."""

from __future__ import annotations

import re

import pytest

from dashinfer_lab.lower.kernel_table import kernel_table
from jit_kernels.compiler import emit_object
from jit_kernels.isa import AVX2, BASELINE, NEON, Isa
from jit_kernels.kernel import Constant, Kernel, Specialisation

EXAMPLES: dict[str, Constant] = {
    "by_product": "units",
    "form": "i16",
    "gather": False,
    "group": 64,
    "gated": "swiglu",
    "has_bias": True,
    "has_residual": True,
    "has_shared": True,
    "biased": True,
    "head_dim": 64,
    "heads_per_kv": 3,
    "key_biased": True,
    "kv_format": "int8",
    "renormalise": True,
    "row_tile": 6,
    "scale_format": "f16",
    "schedule": "default",
    "scaled": True,
    "softcapped": True,
    "turned": True,
    "unit_form": "i16",
    "unit_group": 64,
    "weight_format": "u8",
    "windowed": True,
}
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}

each_kernel = pytest.mark.parametrize("kernel", kernel_table().values(), ids=kernel_table())


def example(kernel: Kernel) -> Specialisation:
    return kernel.specialise(**{name: EXAMPLES[name] for name in kernel.constants})


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize("isa", [BASELINE, NEON], ids=lambda isa: isa.name)
def test_it_compiles_for_machines_other_than_this_one(kernel: Kernel, isa: Isa) -> None:
    content = emit_object(example(kernel).ir(isa), isa)

    assert content[:4] == b"\x7fELF"
    machine = int.from_bytes(content[18:20], "little")
    assert machine == ELF_MACHINE[isa.triple.partition("-")[0]]


@each_kernel
def test_its_code_for_avx2_calls_no_library_and_keeps_vectors_aligned(kernel: Kernel) -> None:
    assembly = example(kernel).show("asm", AVX2)

    assert re.findall(r"\bcallq?\s+\S+|\bjmp\s+\S*@PLT", assembly) == []
    # LLVM aligns no stack for what it finds it must keep there: where that straddled cache lines,
    # by the luck of a process's addresses, linear_u4 took twice as long.
    if re.search(r"%ymm\d+, -?\d*\(%rsp\)", assembly):
        assert re.search(r"andq\s+\$-(32|64), %rsp", assembly)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear_f32", "linear_bf16", "attention"])
def test_sums_of_products_are_fused_vectors(name: str) -> None:
    code = example(kernel_table()[name])

    assert "vfmadd" in code.show("asm", AVX2)
    assert re.search(r"fmla\s+v\d+\.4s", code.show("asm", NEON))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear_u8", "linear_u4"])
def test_integer_products_take_two_pairs_at_a_time(name: str) -> None:
    code = example(kernel_table()[name])

    assert "vpmaddwd" in code.show("asm", AVX2)
    assert re.search(r"[su]mlal2?\s+v\d+\.4s", code.show("asm", NEON))


@each_kernel
def test_it_opens_with_its_formula_and_shows_its_source(kernel: Kernel) -> None:
    assert ":" in kernel.formula
    assert kernel.show("source").startswith("@kernel\ndef ")
    assert kernel.__doc__
