"""Rotations of heads, in the very order of operations of `kv._rotation`."""

from __future__ import annotations

import math

import numba
import numpy as np
from llvmlite import ir

from turbodflash_kernels._cpu.calls import call5
from turbodflash_kernels._cpu.emit import LANES, V_F32, V_I32, Builder, intrinsic
from turbodflash_kernels._cpu.kv_words import SIGNS, TURN
from turbodflash_kernels._cpu.simd import f32x16, load_i64, vload, vsplat, vstore

inline = numba.njit(error_model="numpy")


def _emit_butterflies(builder: Builder, vector: ir.Value) -> ir.Value:
    """Sums and differences of lanes at the distances 1, 2, 4 and 8."""
    for distance in (1, 2, 4, 8):
        lanes = ir.Constant(V_I32, [lane ^ distance for lane in range(LANES)])
        sign = ir.Constant(V_F32, [-1.0 if lane & distance else 1.0 for lane in range(LANES)])
        partner = builder.shuffle_vector(vector, vector, lanes)
        vector = builder.fadd(partner, builder.fmul(vector, sign))
    return vector


butterflies = intrinsic("butterflies", f32x16, (f32x16,), _emit_butterflies)


@inline
def hadamard(x, block, whole):
    """The Hadamard transform of `block` numbers, a power of two from 16 on, over sqrt(whole)."""
    for i in range(0, block, 16):
        vstore(x + 4 * i, butterflies(vload(x + 4 * i)))
    distance = 16
    while distance < block:
        for start in range(0, block, 2 * distance):
            for i in range(start, start + distance, 16):
                a, b = vload(x + 4 * i), vload(x + 4 * (i + distance))
                vstore(x + 4 * i, a + b)
                vstore(x + 4 * (i + distance), a - b)
        distance *= 2
    factor = vsplat(np.float32(1.0 / math.sqrt(np.float64(whole))))
    for i in range(0, block, 16):
        vstore(x + 4 * i, vload(x + 4 * i) * factor)


@inline
def times_signs(x, block, signs):
    for i in range(0, block, 16):
        vstore(x + 4 * i, vload(x + 4 * i) * vload(signs + 4 * i))


def build(name):
    return {"rotate": rotate}[name]


@inline
def turn(kv, x, width, rotation, back):
    """Rotate a head of `width` numbers in place, or back (1); rotation: as TURN_K in kv_words.

    By a call: compiled into those who rotate, it took most of their time to compile.
    """
    if rotation != 0:
        call5(load_i64(kv + TURN), x, width, rotation, load_i64(kv + SIGNS), back)


def rotate(x, width, rotation, signs, back):
    """What `turn` calls.

    A half block at the end stands for the sum of both halves of a block, of which nothing but the
    first half is wanted back.
    """
    if rotation > 0:
        for start in range(0, width, rotation):
            hadamard(x + 4 * start, rotation, rotation)
    if rotation < 0:
        block = -rotation
        before, after = signs, signs + 4 * block
        if back != 0:
            before, after = after, before
        for start in range(0, width, block):
            count = min(block, width - start)
            times_signs(x + 4 * start, count, before)
            hadamard(x + 4 * start, count, block)
            times_signs(x + 4 * start, count, after)
