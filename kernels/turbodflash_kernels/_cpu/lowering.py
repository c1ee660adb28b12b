"""Numba as a front end: Python function -> LLVM IR, and nothing of what it usually does next.

On its own it optimises every function that a kernel calls, with all that those call, again and
again, and makes machine code of each, and of two wrappers for Python. None of that is used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """The IR of a function and of what it calls, as it was written."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()  # links what the function calls
        return 0  # nobody calls it from Python


class _Codegen(JITCPUCodegen):  # type: ignore[misc]
    _library_class = _Library

    def set_env(self, env_name: str, env: Any) -> None:
        pass  # only what touches Python objects would look there


def lower(function: Callable[..., None], arguments: int) -> tuple[llvm.ModuleRef, str]:
    """A module in which all is defined that the function needs, and the function's name in it.

    The function takes so many int64 and must not raise, allocate or touch Python objects.
    """
    kind = types.void(*[types.int64] * arguments)
    with _as_front_end():
        compiled = numba.njit(kind, error_model="numpy")(function).overloads[kind.args]
    return llvm.parse_assembly(compiled.library.get_llvm_str()), compiled.fndesc.llvm_func_name


@contextmanager
def _as_front_end() -> Iterator[None]:
    """Whatever Numba compiles meanwhile, in any thread that waits for its lock, is only lowered."""
    context = cpu_target.target_context
    with global_compiler_lock:
        context.refresh()  # its own runtime is made into machine code, at the first call
        usual = context._internal_codegen
        context._internal_codegen = _codegen()
        for name in _UNUSED:
            setattr(context, name, _nothing)  # in front of the method
        try:
            yield
        finally:
            context._internal_codegen = usual
            for name in _UNUSED:
                delattr(context, name)


_UNUSED = ("create_cpython_wrapper", "create_cfunc_wrapper", "post_lowering")
"""Steps of Numba's that are left out: the last one links its reference counting."""


def _nothing(*_: Any, **__: Any) -> None:
    pass


@cache
def _codegen() -> _Codegen:
    return _Codegen("turbodflash")
