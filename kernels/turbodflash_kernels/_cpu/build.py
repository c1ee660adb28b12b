"""Compile a kernel: Python function -> Numba -> LLVM IR -> object code for this machine."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding as llvm

from turbodflash_kernels._cpu.lowering import lower

_WRAPPER = """
define void @{symbol}({parameters}) {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{inner}"(ptr %result, ptr %error, {parameters})
  ret void
}}
declare i32 @"{inner}"(ptr, ptr, {types})
define void @NRT_incref(ptr %memory) {{ ret void }}
define void @NRT_decref(ptr %memory) {{ ret void }}
"""
"""The kernel for a caller that knows nothing of Numba. Tables that it reads live for ever, so that
nobody needs to count who refers to them.
"""


def compile_object(function: Callable[..., None], symbol: str) -> bytes:
    """Object code that defines `symbol`: a C function of int64 arguments, returning nothing.

    The kernel must not raise, allocate or touch Python objects; what it does with addresses is
    its own business.
    """
    machine = target_machine()
    return machine.emit_object(compile_module(function, symbol, machine))


def compile_module(
    function: Callable[..., None], symbol: str, machine: llvm.TargetMachine
) -> llvm.ModuleRef:
    """The optimised IR of the kernel, and of nothing else."""
    count = function.__code__.co_argcount
    module, inner = lower(function, count)
    module.link_in(
        llvm.parse_assembly(
            _WRAPPER.format(
                symbol=symbol,
                inner=inner,
                parameters=", ".join(f"i64 %a{i}" for i in range(count)),
                types=", ".join(["i64"] * count),
            )
        )
    )
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name != symbol:
            item.linkage = llvm.Linkage.internal
    _optimise(module, machine)
    return module


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    # level 3 orders the loops of two rows so that one vector more has to leave the registers
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)


def target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
