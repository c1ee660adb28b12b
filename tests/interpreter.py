"""Triton's interpreter, made to do less of the same again, and to multiply as a card does."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle


def improve() -> None:
    """Calls within kernels get cheaper, and products independent of where their rows stand."""
    InterpretedFunction.__call__ = _call
    InterpreterBuilder.create_dot = _create_dot


_patching: Any = InterpretedFunction.__call__


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function from a kernel.

    The interpreter patches the whole language at every such call and never takes that back, which
    costs milliseconds; once is enough.
    """
    seen = [module for module in self.fn.__globals__.values() if module is tl or module is tl.core]
    if any(tl.core.is_builtin(module.load) for module in seen):
        return _patching(self, *args, **kwargs)
    return self.rewrite()(*args, **kwargs)


def _create_dot(
    self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any
) -> Any:
    """d + a b, products summed in float64.

    A library's product in float32 gives the rows of a tile bits that depend on their places in it;
    those of a tensor core do not.
    """
    products = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
    return TensorHandle(products.astype(d.data.dtype) + d.data, d.dtype.scalar)
