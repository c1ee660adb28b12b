"""Queries and weights as whole numbers, for integer_kernels.

queries(x, count, width): heads f32 [count, 64] become numbers of 16 bits in the order that scores
meet them, and at the end of each head's memory the float32 that its scores are to be multiplied by.
weights(scores, count, begin, end, scales, row_bytes, whole, factors, work): weights f32 [count,
CHUNK], of which begin..end-1 count, times the scales of values, float16 that lie row_bytes apart,
become numbers of 16 bits [count, CHUNK]; factors f32 [count] are for their sums.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from turbodflash_kernels._cpu import integer_kernels
from turbodflash_kernels._cpu.chunk_words import SCORE_BYTES, WHOLE_BYTES
from turbodflash_kernels._cpu.emit import (
    F16,
    I16,
    I32,
    V_F32,
    V_I32,
    Builder,
    call,
    intrinsic,
    load,
    row_addresses,
    store,
)
from turbodflash_kernels._cpu.encode_steps import vabs
from turbodflash_kernels._cpu.integers import shuffled
from turbodflash_kernels._cpu.simd import (
    f32x16,
    store_f32,
    vbelow,
    vload,
    vmax,
    vmax_of,
    vsplat,
    vstore,
    vsum,
)

inline = numba.njit(error_model="numpy")

ZERO = np.float32(0)
MOST, MOST_SUM = np.float32(32767), np.float32(integer_kernels.MOST_SUM)
UNIT = np.float32(integer_kernels.UNIT)
SMALLEST = np.float32(1e-30)  # numbers that are not larger are nothing
SHORTS = ir.VectorType(I16, 16)


def build(name: str) -> Any:
    return {"queries": queries, "weights": weights}[name]


def _emit_whole(builder: Builder, x: ir.Value) -> ir.Value:
    near = call(builder, "llvm.rint.v16f32", V_F32, x)
    return builder.trunc(builder.fptosi(near, V_I32), SHORTS)


def _emit_store_whole(builder: Builder, address: ir.Value, x: ir.Value) -> None:
    store(builder, _emit_whole(builder, x), address)


def _emit_store_turned(builder: Builder, address: ir.Value, x: ir.Value) -> None:
    """Of each eight, first those of even places, as bytes hold them in their lower halves."""
    order = [8 * half + 2 * i + odd for half in (0, 1) for odd in (0, 1) for i in range(4)]
    whole = _emit_whole(builder, x)
    store(builder, shuffled(builder, whole, whole, order), address)


def _emit_gather(builder: Builder, first: ir.Value, step: ir.Value) -> ir.Value:
    """Sixteen float16, so far apart."""
    found = ir.Constant(SHORTS, ir.Undefined)
    for lane, at in enumerate(row_addresses(builder, first, step, 16)):
        found = builder.insert_element(found, load(builder, at, I16), I32(lane))
    return builder.fpext(builder.bitcast(found, ir.VectorType(F16, 16)), V_F32)


_address = types.int64
store_whole = intrinsic("store_whole", types.void, (_address, f32x16), _emit_store_whole)
store_turned = intrinsic("store_turned", types.void, (_address, f32x16), _emit_store_turned)
gather_halves = intrinsic("gather_halves", f32x16, (_address, _address), _emit_gather)


@inline
def factor_of(most, total):
    """What numbers may be multiplied by, of which the largest and the sum of all sizes are known:
    0 if all are nothing, NaN if one is not finite."""
    if most > SMALLEST:
        return min(MOST / most, MOST_SUM / total) + total * ZERO
    return total * ZERO


@inline
def inverse_of(factor):
    return UNIT / factor if factor != ZERO else factor


def queries(x, count, width):
    for at in range(x, x + 4 * width * count, 4 * width):
        highest, sizes = vsplat(ZERO), vsplat(ZERO)
        for i in range(at, at + 4 * width, 64):
            size = vabs(vload(i))
            highest, sizes = vmax(size, highest), sizes + size
        factor = factor_of(vmax_of(highest), vsum(sizes))
        for i in range(0, width, 16):
            store_turned(at + 2 * i, vload(at + 4 * i) * vsplat(factor))
        store_f32(at + 4 * width - 4, inverse_of(factor))


def weights(scores, count, begin, end, scales, row_bytes, whole, factors, work):
    for i in range(begin, end, 16):
        found = gather_halves(scales + i * row_bytes, row_bytes)
        vstore(work + 4 * i, vbelow(end - i, found, vsplat(ZERO)))
    for j in range(count):
        at, to = scores + SCORE_BYTES * j, whole + WHOLE_BYTES * j
        highest, sizes = vsplat(ZERO), vsplat(ZERO)
        for i in range(begin, end, 16):
            size = vabs(vload(at + 4 * i) * vload(work + 4 * i))
            highest, sizes = vmax(size, highest), sizes + size
        factor = factor_of(vmax_of(highest), vsum(sizes))
        for i in range(begin, end, 16):
            number = vload(at + 4 * i) * vload(work + 4 * i)
            store_whole(to + 2 * i, number * vsplat(factor))
        store_f32(factors + 4 * j, inverse_of(factor))
