"""Compile a kernel: Python function -> Numba -> LLVM IR -> object code for this machine."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding as llvm
import numba
from numba import types

_WRAPPER = """
define void @{symbol}({parameters}) {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{inner}"(ptr %result, ptr %error, {parameters})
  ret void
}}
declare i32 @"{inner}"(ptr, ptr, {types})
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
    kind = types.void(*[types.int64] * count)
    dispatcher = numba.njit(kind, error_model="numpy", nogil=True)(function)
    compiled = dispatcher.overloads[kind.args]
    module = llvm.parse_assembly(compiled.library.get_llvm_str())
    module.link_in(
        llvm.parse_assembly(
            _WRAPPER.format(
                symbol=symbol,
                inner=compiled.fndesc.llvm_func_name,
                parameters=", ".join(f"i64 %a{i}" for i in range(count)),
                types=", ".join(["i64"] * count),
            )
        )
    )
    _keep_only(module, symbol, machine)
    return module


def _keep_only(module: llvm.ModuleRef, symbol: str, machine: llvm.TargetMachine) -> None:
    """Drop what else Numba put there: its wrappers call into the Python runtime."""
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name != symbol:
            item.linkage = llvm.Linkage.internal
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


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
