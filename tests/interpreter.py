"""Triton's interpreter, made to do less of the same again."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction


def hasten() -> None:
    """Let functions that kernels call trust that the language is patched already.

    The interpreter patches all of it at every such call, and never takes that back: milliseconds,
    for a function that takes as long.
    """
    if InterpretedFunction.__call__ is _call:
        return
    InterpretedFunction.__call__ = _call


_patching: Any = InterpretedFunction.__call__


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    seen = [module for module in self.fn.__globals__.values() if module is tl or module is tl.core]
    if any(tl.core.is_builtin(module.load) for module in seen):
        return _patching(self, *args, **kwargs)
    return self.rewrite()(*args, **kwargs)
