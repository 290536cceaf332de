from __future__ import annotations

import pytest

from jit_kernels import isa as isa_module
from jit_kernels.compiler import Compiler, ObjectCache
from jit_kernels.errors import CompileError, IsaError
from jit_kernels.isa import AVX2, AVX512, BASELINE, ISA_NAMES, NEON, detect, record, runnable


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine whose features the test chooses; detection starts afresh."""
    isa_module._detect.cache_clear()
    monkeypatch.delenv("JIT_KERNELS_ISA", raising=False)
    monkeypatch.setattr(isa_module.platform, "machine", lambda: "x86_64")
    yield monkeypatch
    isa_module._detect.cache_clear()


def offer(machine: pytest.MonkeyPatch, *features: str) -> None:
    everything = {"avx512bf16", "amx-int8", *AVX512.requires}
    found = {name: name in features for name in everything}
    machine.setattr(isa_module, "host_features", lambda: found)


def test_the_best_record_the_features_allow_is_taken(machine: pytest.MonkeyPatch) -> None:
    offer(machine, *AVX512.requires)
    assert detect().name == "avx512"


@pytest.mark.parametrize("missing", ["avx512vl", "avx512vnni", "avx512f"])
def test_masked_avx512_falls_back_to_avx2_whatever_the_processor_is_called(
    machine: pytest.MonkeyPatch, missing: str
) -> None:
    offer(machine, *(feature for feature in AVX512.requires if feature != missing))

    assert detect().name == "avx2"


def test_avx2_code_is_told_to_keep_off_everything_above(machine: pytest.MonkeyPatch) -> None:
    offer(machine, *AVX2.requires, "avx512bf16", "amx-int8")

    features = detect().features.split(",")
    assert {"+avx2", "+fma", "+f16c", "-avx512f", "-avx512bf16", "-amx-int8"} <= set(features)


@pytest.mark.parametrize("missing", AVX2.requires)
def test_a_machine_without_one_of_avx2s_features_runs_the_baseline(
    machine: pytest.MonkeyPatch, missing: str
) -> None:
    offer(machine, *(feature for feature in AVX2.requires if feature != missing))

    assert detect() == BASELINE


def test_the_environment_chooses_a_lesser_record(machine: pytest.MonkeyPatch) -> None:
    offer(machine, *AVX512.requires)
    machine.setenv("JIT_KERNELS_ISA", "x86-64")

    assert detect() == BASELINE


def test_the_environment_cannot_choose_what_the_machine_lacks(machine: pytest.MonkeyPatch) -> None:
    offer(machine, *AVX2.requires)
    machine.setenv("JIT_KERNELS_ISA", "avx512")

    with pytest.raises(IsaError, match=r"lacks .*avx512f.*unset it to use avx2"):
        detect()


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(IsaError, match="'avx3'; known: avx512, avx2, x86-64, neon"):
        record("avx3")

    assert [record(name).name for name in ISA_NAMES] == list(ISA_NAMES)


def test_code_for_another_processor_is_emitted_but_never_run() -> None:
    assert not runnable(NEON)

    with pytest.raises(CompileError, match="neon code cannot run on this machine"):
        Compiler(NEON, ObjectCache(None))


def test_the_features_are_those_the_operating_system_enabled() -> None:
    """/proc/cpuinfo lists AVX only where the kernel saves its registers (XCR0)."""
    flags = isa_module.Path("/proc/cpuinfo").read_text(encoding="ascii").split()
    enabled = isa_module.host_features()

    assert enabled["avx2"] == ("avx2" in flags)
    assert enabled["avx512f"] == ("avx512f" in flags)
