"""Kernel of `gate` for Numba."""

from __future__ import annotations

from turbodflash_kernels._cpu.curve_kernels import ACTIVATIONS
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i64,
    store_f32,
    vload,
    vload_partial,
    vsplat,
    vstore,
)


def build(name, *spec):
    return {"gate": gate}[name](*spec)


def gate(activation: str, each: bool):
    """words: gate, gate_stride, x, x_stride, residual, residual_stride, out, out_stride, width.
    One task a row.

    each: every number has its gate; else a row has one.
    """
    activate = ACTIVATIONS[activation]

    def kernel(args, task, scratch):
        gates = load_i64(args) + task * load_i64(args + 8)
        x = load_i64(args + 16) + task * load_i64(args + 24)
        residual, width = load_i64(args + 32), load_i64(args + 64)
        if residual != 0:
            residual += task * load_i64(args + 40)
        out = load_i64(args + 48) + task * load_i64(args + 56)
        factor = activate(vsplat(load_f32(gates)))
        rest = width % 16
        for i in range(0, width - rest, 16):
            if each:
                factor = activate(vload(gates + 4 * i))
            v = factor * vload(x + 4 * i)
            if residual != 0:
                v = v + vload(residual + 4 * i)
            vstore(out + 4 * i, v)
        if rest > 0:
            i = width - rest
            if each:
                factor = activate(vload_partial(gates + 4 * i, rest))
            v = factor * vload_partial(x + 4 * i, rest)
            if residual != 0:
                v = v + vload_partial(residual + 4 * i, rest)
            vstore(scratch, v)
            for j in range(rest):
                store_f32(out + 4 * (i + j), load_f32(scratch + 4 * j))

    return kernel
