"""Triton's interpreter, made to do less of the same again, and to multiply as a card does."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle


def improve() -> None:
    """What a kernel does gets cheaper, and products independent of where their rows stand."""
    InterpretedFunction.__call__ = _call
    InterpreterBuilder.create_dot = _create_dot
    tl.tensor.__init__ = _init_tensor
    tl.block_type.with_element_ty = _with_element_type
    tl.block_type.to_ir = lambda self, builder: self  # types are what the interpreter has for IR
    interpreter._get_np_dtype = _numpy_type
    # each sum of integers is otherwise computed again in 64 bits, for an assertion that is off
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


_patching: Any = InterpretedFunction.__call__
_find_numpy_type: Any = interpreter._get_np_dtype


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function from a kernel.

    The interpreter patches the whole language at every such call and never takes that back, which
    costs milliseconds; once is enough.
    """
    if any(tl.core.is_builtin(language.load) for language in _languages(self.fn)):
        return _patching(self, *args, **kwargs)
    return self.rewrite()(*args, **kwargs)


@cache
def _languages(function: Any) -> list[Any]:
    """The modules of the language that a function sees."""
    return [each for each in function.__globals__.values() if each is tl or each is tl.core]


def _init_tensor(self: Any, handle: Any, type: Any) -> None:
    """As the language's own, which makes the objects of a shape for each tensor again."""
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = _shape(tuple(type.shape) if type.is_block() else ())


@cache
def _shape(sizes: tuple[int, ...]) -> tuple[Any, Any]:
    return tl.tuple([tl.constexpr(size) for size in sizes]), tl.constexpr(math.prod(sizes))


def _with_element_type(self: Any, scalar: Any) -> Any:
    """The block type of this shape, which is known to be one."""
    other = object.__new__(tl.block_type)
    other.element_ty, other.shape, other.numel = scalar, self.shape, self.numel
    other.name = f"<{self.shape}, {scalar}>"
    return other


def _numpy_type(type: Any) -> Any:
    """As the interpreter's own, which makes the table of all types for each look into it."""
    scalar = type.scalar
    return np.dtype(np.uint64) if scalar.is_ptr() else _numpy_type_of(scalar)


_numpy_type_of = cache(_find_numpy_type)


def _create_dot(
    self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any
) -> Any:
    """d + a b, products summed in float64.

    A library's product in float32 gives the rows of a tile bits that depend on their places in it;
    those of a tensor core do not.
    """
    products = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
    return TensorHandle(products.astype(d.data.dtype) + d.data, d.dtype.scalar)
