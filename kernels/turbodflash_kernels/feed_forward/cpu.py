"""Kernels of `feed_forward` for Numba: what is between its products goes from registers to codes.

A tile of the gate and the tile of up that it lets through are computed by one thread, side by side
where the machine takes two tiles abreast. Of two such pairs come 32 columns: a block of codes.
"""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu import activations, layout
from turbodflash_kernels._cpu.activations import quantise_blocks
from turbodflash_kernels._cpu.curve_kernels import ACTIVATIONS
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels._cpu.row_kernels import multiplier
from turbodflash_kernels._cpu.simd import load_f32, load_i64, vload, vsplat, vstore
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels._cpu.tiles import RESULT_BYTES, RESULTS_AT
from turbodflash_kernels.linear.cpu import prepared, share

SECOND_AT = 1 << 13  # where a tile that is computed by itself has its memory, behind the gate's
VALUES_AT = 1 << 15
LINES_AT = VALUES_AT + 4 * layout.PANEL * layout.BLOCK
PAIRS = layout.BLOCK // layout.TILE  # of a block of codes
MOST_PAIRS = activations.VALUES // layout.TILE  # that are quantised together

inline = numba.njit(error_model="numpy", forceinline=True)


def gated(view: View, activation: str, isa: str):
    """act(gate) * up of rows of activations, as int8 codes.

    words: weights, tile_bytes, pairs, pairs_per_task, n, rows_per_task, blocks, factor,
           lines, row_bytes, row_stride, block_stride   (of what is multiplied)
           lines, row_bytes, row_stride, block_stride   (of the codes)
    Tasks run over pairs first, an even number each, then over activation rows. Pair i is of tiles i
    and pairs + i.
    """
    multiply, abreast = multiplier(view, isa), MACHINES[isa].abreast
    activate = ACTIVATIONS[activation]

    @inline
    def both(args, pair, lines, rows, scratch):
        """Where the results of a gate are, and of what it lets through: f32 [rows, 16]."""
        tile_bytes, blocks = load_i64(args + 8), load_i64(args + 48)
        row_stride, block_stride = load_i64(args + 80), load_i64(args + 88)
        weights, apart = load_i64(args) + pair * tile_bytes, load_i64(args + 16) * tile_bytes
        gate = scratch + RESULTS_AT
        if abreast == 2:
            multiply(weights, apart, 0, lines, row_stride, block_stride, blocks, rows, scratch,
                     tile_bytes)  # fmt: skip
            return gate, gate + RESULT_BYTES
        multiply(weights, 0, 0, lines, row_stride, block_stride, blocks, rows, scratch, tile_bytes)
        multiply(weights + apart, 0, 0, lines, row_stride, block_stride, blocks, rows,
                 scratch + SECOND_AT, tile_bytes)  # fmt: skip
        return gate, gate + SECOND_AT

    @inline
    def values_of(args, pair, count, lines, rows, scratch):
        """Of some pairs, f32 [rows, count, 16] at VALUES_AT."""
        factor = vsplat(load_f32(args + 56))
        for i in range(count):
            gate, up = both(args, pair + i, lines, rows, scratch)
            for r in range(rows):
                let_through = activate(vload(gate + 64 * r) * factor)
                value = let_through * (vload(up + 64 * r) * factor)
                vstore(scratch + VALUES_AT + 64 * (r * count + i), value)

    def kernel(args, task, scratch):
        first_pair, last_pair, first, last = share(args, task)
        lines = prepared(load_i64(args + 64), scratch) + first * load_i64(args + 72)
        out, rows = load_i64(args + 96) + first * load_i64(args + 104), last - first
        out_stride, block_stride = load_i64(args + 112), load_i64(args + 120)
        codes = scratch + LINES_AT
        step = MOST_PAIRS // rows // PAIRS * PAIRS if rows <= MOST_PAIRS // PAIRS else PAIRS
        for pair in range(first_pair, last_pair, step):
            count = min(step, last_pair - pair)
            values_of(args, pair, count, lines, rows, scratch)
            of_row, to = count // PAIRS, out + pair // PAIRS * block_stride
            for first_block in range(0, rows * of_row, activations.BLOCKS):
                quantise_blocks(scratch + VALUES_AT + 4 * layout.BLOCK * first_block, codes, LINE)
                for b in range(min(rows * of_row - first_block, activations.BLOCKS)):
                    row, block = (first_block + b) // of_row, (first_block + b) % of_row
                    vstore(to + row * out_stride + block * block_stride, vload(codes + LINE * b))

    return kernel


def build(name, *spec):
    return {"gated": gated}[name](*spec)
