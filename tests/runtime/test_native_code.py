from __future__ import annotations

import re
import time

import pytest

from jit_kernels.compiler import emit_assembly
from jit_kernels.isa import AVX2, NEON, Isa
from jit_kernels.runtime.clock import cycles_per_second
from jit_kernels.runtime.image import native_ir
from tests.runtime.compiled import compiler


def body_of(function: str, isa: Isa) -> str:
    found = re.search(rf'^define [^\n]*@"{function}"\(.*?^}}', native_ir(isa), re.DOTALL | re.M)

    assert found
    return found[0]


@pytest.mark.parametrize(
    ("isa", "reader"), [(AVX2, "readcyclecounter"), (NEON, "read_volatile_register")]
)
def test_only_the_profiling_interpreter_reads_the_clock(isa: Isa, reader: str) -> None:
    reads = {name: reader in body_of(name, isa) for name in ("walk", "walk_counting")}

    assert reads == {"walk": False, "walk_counting": True}


def test_only_the_delaying_interpreter_pauses_before_operations() -> None:
    multiplications = {
        name: body_of(name, AVX2).count(" mul ")
        for name in ("walk", "walk_counting", "walk_delayed")
    }

    assert multiplications["walk"] == multiplications["walk_counting"]
    assert multiplications["walk_delayed"] > multiplications["walk"]


def test_code_for_aarch64_has_its_own_state_clock_and_system_calls() -> None:
    assembly = emit_assembly(native_ir(NEON), NEON).lower()

    assert "mrs\tx" in assembly
    assert "fpcr" in assembly
    assert "cntvct_el0" in assembly
    assert re.search(r"mov\tw0, #98\b", assembly)  # futex
    assert re.search(r"mov\tw0, #178\b", assembly)  # gettid
    assert "ldar" in assembly


def test_cycles_count_time() -> None:
    rate = cycles_per_second(compiler())
    begin = time.perf_counter()
    again = cycles_per_second.__wrapped__(compiler())
    elapsed = time.perf_counter() - begin

    # An invariant counter; a fifth allows for a busy machine.
    assert again == pytest.approx(rate, rel=0.2)
    assert 1e6 < rate < 2e10
    assert elapsed < 5
