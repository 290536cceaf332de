"""IR text to object code or assembly for an `Isa`; knows nothing of kernels or caches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from llvmlite import binding

from jit_kernels.errors import CompileError
from jit_kernels.isa import Isa

__all__ = [
    "data_layout",
    "emit_assembly",
    "emit_object",
    "llvm_version",
    "optimised_ir",
    "target_machine",
]


@lru_cache(maxsize=1)
def _initialise() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def llvm_version() -> str:
    """LLVM's version, part of every cache key."""
    return ".".join(str(part) for part in binding.llvm_version_info)


def target_machine(isa: Isa) -> Any:
    """LLVM's code generator for `isa`, features always explicit."""
    _initialise()
    target = binding.Target.from_triple(isa.triple)
    return target.create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3, reloc="pic", codemodel="small"
    )


@lru_cache(maxsize=8)
def data_layout(isa: Isa) -> str:
    """LLVM's data layout string for `isa`."""
    return str(target_machine(isa).target_data)


def _optimised(text: str, isa: Isa) -> tuple[Any, Any]:
    """Verify and optimise a module; loops and vectors stay as the generator wrote them."""
    machine = target_machine(isa)
    try:
        module = binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the module for {isa.name}: {error}") from error
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def optimised_ir(text: str, isa: Isa) -> str:
    """The module after LLVM's passes."""
    return str(_optimised(text, isa)[0])


def emit_object(text: str, isa: Isa) -> bytes:
    """A relocatable object file; raises `CompileError`."""
    module, machine = _optimised(text, isa)
    return bytes(machine.emit_object(module))


def emit_assembly(text: str, isa: Isa) -> str:
    """Assembly text; raises `CompileError`."""
    module, machine = _optimised(text, isa)
    return str(machine.emit_assembly(module))
