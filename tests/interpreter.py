"""Triton's interpreter, made to do less of the same again, and to multiply as a card does."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def improve() -> None:
    """What a kernel does gets cheaper, and products independent of where their rows stand."""
    interpreter._patch_lang = _patch_language_once
    TritonSemantic.broadcast_impl_value = _broadcast_what_differs
    InterpreterBuilder.create_dot = _create_dot
    tl.tensor.__init__ = _init_tensor
    tl.block_type.with_element_ty = _with_element_type
    tl.block_type.to_ir = lambda self, builder: self  # types are what the interpreter has for IR
    interpreter._get_np_dtype = _numpy_type
    # each sum of integers is otherwise computed again in 64 bits, for an assertion that is off
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


_find_numpy_type: Any = interpreter._get_np_dtype
_patch_language: Any = interpreter._patch_lang
_broadcast: Any = TritonSemantic.broadcast_impl_value


def _patch_language_once(function: Any) -> Any:
    """The interpreter puts its own functions into the language, which costs milliseconds, at every
    launch and every call within; here they stay."""
    globals = function.__globals__.values()
    languages = [each for each in globals if each is tl or each is tl.core]
    if any(tl.core.is_builtin(language.load) for language in languages):
        _patch_language(function)
    return interpreter._LangPatchScope()  # with nothing to be taken back


def _broadcast_what_differs(self: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """As the language's own, which goes through the sizes of equal shapes, too."""
    shapes = [each.type.shape.values if each.type.is_block() else [] for each in (left, right)]
    return (left, right) if shapes[0] == shapes[1] else _broadcast(self, left, right)


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
