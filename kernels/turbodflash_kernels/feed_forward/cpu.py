"""Kernels of `feed_forward` for Numba: what is between its products goes from registers to codes.

A tile of the gate and the tile of up that it lets through are computed by one thread, side by side
where the machine takes two tiles abreast. Of two such pairs come 32 columns: a block of codes.
"""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu import activations, layout, tiles
from turbodflash_kernels._cpu.activations import quantiser
from turbodflash_kernels._cpu.curve_kernels import ACTIVATIONS
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels._cpu.simd import load_f32, load_i64, vload, vsplat, vstore
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels.linear.cpu import AHEAD, filled, prepared, share

ROW_BYTES = 4 * layout.BLOCK  # of values that become a block
SECOND_AT = 1 << 13  # where a tile that is computed by itself has its memory, behind the gate's
VALUES_AT = 1 << 15
RESULTS_AT = VALUES_AT + layout.PANEL * ROW_BYTES
LINES_AT = RESULTS_AT + 2 * 64 * activations.VALUES // layout.TILE

inline = numba.njit(error_model="numpy", forceinline=True)


def gated(view: View, activation: str, isa: str):
    """act(gate) * up of rows of activations, as int8 codes.

    words: weights, tile_bytes, pairs, pairs_per_task, n, rows_per_task, blocks, factor,
           lines, row_bytes, row_stride, block_stride   (of what is multiplied)
           lines, row_bytes, row_stride, block_stride   (of the codes)
    Tasks run over pairs first, an even number each, then over activation rows. Pair i is of tiles i
    and pairs + i.
    """
    tile1, tile2 = (tiles.quantised_tile(view, isa, rows) for rows in (1, 2))
    grouped, abreast = tiles.grouped_tile(view, isa), MACHINES[isa].abreast
    activate = ACTIVATIONS[activation]
    quantise_blocks = quantiser(MACHINES[isa].factors_twice)

    @inline
    def put(values, gate, up, factor):
        let_through = activate(vload(gate) * vsplat(factor))
        vstore(values, let_through * (vload(up) * vsplat(factor)))

    @inline
    def of_groups(args, pair, lines, out, groups, scratch):
        """A block of codes for groups of four rows."""
        tile_bytes, blocks = load_i64(args + 8), load_i64(args + 48)
        row_stride, block_stride = load_i64(args + 80), load_i64(args + 88)
        up_apart, out_stride = load_i64(args + 16) * tile_bytes, load_i64(args + 112)
        for part in range(2):
            weights = load_i64(args) + (pair + part) * tile_bytes
            gate = scratch + tiles.TOTALS_AT
            if abreast == 2:
                grouped(
                    weights, up_apart, 0, lines, row_stride, block_stride, blocks, groups, scratch,
                    tile_bytes,
                )  # fmt: skip
                up = gate + tiles.TOTAL_BYTES
            else:
                grouped(
                    weights, 0, 0, lines, row_stride, block_stride, blocks, groups, scratch,
                    tile_bytes,
                )  # fmt: skip
                grouped(
                    weights + up_apart, 0, 0, lines, row_stride, block_stride, blocks, groups,
                    scratch + SECOND_AT, tile_bytes,
                )  # fmt: skip
                up = gate + SECOND_AT
            values = scratch + VALUES_AT + 64 * part
            for r in range(groups * layout.GROUP):
                put(values + ROW_BYTES * r, gate + 64 * r, up + 64 * r, load_f32(args + 56))
        for r in range(0, groups * layout.GROUP, layout.GROUP):
            quantise_blocks(scratch + VALUES_AT + ROW_BYTES * r, out + r * out_stride, out_stride)

    @inline
    def some_tiles(args, first, count, left, rows, results):
        """Results [count, rows, 16] of neighbouring tiles and one or two rows."""
        tile_bytes, blocks = load_i64(args + 8), load_i64(args + 48)
        row_stride, block_stride = load_i64(args + 80), load_i64(args + 88)
        for i in range(count):
            weights, to = load_i64(args) + (first + i) * tile_bytes, results + 64 * rows * i
            if rows == 2:
                tile2(weights, 0, left, row_stride, block_stride, blocks, to, 64, AHEAD)
            else:
                tile1(weights, 0, left, row_stride, block_stride, blocks, to, 64, AHEAD)

    @inline
    def of_rest(args, pair, count, left, out, rows, scratch):
        """Blocks of codes of one or two rows: as many as are quantised together."""
        gate, values, lines = scratch + RESULTS_AT, scratch + VALUES_AT, scratch + LINES_AT
        up = gate + 64 * rows * count
        some_tiles(args, pair, count, left, rows, gate)
        some_tiles(args, load_i64(args + 16) + pair, count, left, rows, up)
        for r in range(rows):
            for i in range(count):
                at = 64 * (rows * i + r)
                put(values + 64 * (r * count + i), gate + at, up + at, load_f32(args + 56))
        quantise_blocks(values, lines, LINE)
        of_row = count // 2
        for r in range(rows):
            for b in range(of_row):
                to = out + r * load_i64(args + 112) + b * load_i64(args + 120)
                vstore(to, vload(lines + LINE * (r * of_row + b)))

    def kernel(args, task, scratch):
        first_pair, last_pair, first, last = share(args, task)
        lines = prepared(load_i64(args + 64), scratch) + first * load_i64(args + 72)
        out = load_i64(args + 96) + first * load_i64(args + 104)
        groups = filled(last - first) // layout.GROUP
        in_groups = min(groups * layout.GROUP, last - first)
        rest = last - first - in_groups
        if groups > 0:
            for pair in range(first_pair, last_pair, 2):
                to = out + pair // 2 * load_i64(args + 120)
                of_groups(args, pair, lines, to, groups, scratch)
        if rest > 0:
            left = lines + in_groups * load_i64(args + 80)
            out += in_groups * load_i64(args + 112)
            step = activations.VALUES // layout.TILE // rest
            for pair in range(first_pair, last_pair, step):
                to = out + pair // 2 * load_i64(args + 120)
                of_rest(args, pair, min(step, last_pair - pair), left, to, rest, scratch)

    return kernel


def build(name, *spec):
    return {"gated": gated}[name](*spec)
