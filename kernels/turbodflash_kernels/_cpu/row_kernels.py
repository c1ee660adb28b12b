"""Rows of activations times a tile of weights, or two abreast, however many rows there are."""

from __future__ import annotations

from typing import Any

import numba

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.machines import MACHINES
from turbodflash_kernels._cpu.streams import View
from turbodflash_kernels._cpu.tiles import (
    RESULTS_AT,
    abreast_tiles,
    grouped_tile,
    quantised_tile,
)

AHEAD = 3072  # one or two rows wait for memory: ask for weights well before they are needed

inline = numba.njit(error_model="numpy", forceinline=True)
filled = inline(layout.filled)


def multiplier(view: View, isa: str) -> Any:
    """multiply(weights, apart, lower, lines, row_stride, block_stride, blocks, rows, work, ahead):
    tiles times rows, up to a panel of them.

    weights: of the first tile; a second one lies `apart`, 0 if there is none, as there is never
    one where machines take a single tile. lower: where there are two streams, the second. lines: of
    the first row's first block (see rows.py). ahead: bytes from here to the tiles that come next.
    Results of tile t: f32 [rows, 16] at work + RESULTS_AT + t * RESULT_BYTES.
    """
    if MACHINES[isa].abreast > 1:
        return abreast_tiles(view, isa)
    tile1, tile2 = (quantised_tile(view, isa, rows) for rows in (1, 2))
    grouped = grouped_tile(view, isa)

    @inline
    def multiply(weights, apart, lower, lines, row_stride, block_stride, blocks, rows, work, ahead):
        groups = filled(rows) // layout.GROUP
        together = min(groups * layout.GROUP, rows)
        if groups > 0:
            grouped(weights, lower, lines, row_stride, block_stride, blocks, groups, work, ahead)
        left, to = lines + together * row_stride, work + RESULTS_AT + 64 * together
        if rows - together == 2:
            tile2(weights, lower, left, row_stride, block_stride, blocks, to, 64, AHEAD)
        elif rows - together == 1:
            tile1(weights, lower, left, row_stride, block_stride, blocks, to, 64, AHEAD)

    return multiply
