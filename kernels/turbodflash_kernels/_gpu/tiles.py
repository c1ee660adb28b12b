"""What blocks of a matrix product compute, by card."""

from __future__ import annotations

from typing import NamedTuple

import triton

from turbodflash_kernels._gpu.device import FEW_ROWS, GpuDevice


class Tile(NamedTuple):
    """What a block computes: rows of x times columns of the result."""

    rows: int
    columns: int
    warps: int
    stages: int


class Tiles(NamedTuple):
    """Tiles for passes of up to 16, up to FEW_ROWS, and more rows.

    narrow: for up to 16 where tiles of `few` would leave multiprocessors without work.
    """

    narrow: Tile
    few: Tile
    more: Tile
    many: Tile


SMALL_SHARED = Tiles(
    Tile(16, 32, 2, 3), Tile(16, 64, 4, 3), Tile(32, 64, 4, 2), Tile(64, 128, 8, 2)
)
LARGE_SHARED = Tiles(
    Tile(16, 32, 2, 4), Tile(16, 64, 4, 4), Tile(32, 64, 4, 3), Tile(128, 128, 8, 2)
)
INTERPRETED = Tiles(
    Tile(16, 128, 4, 1), Tile(16, 128, 4, 1), Tile(32, 128, 4, 1), Tile(128, 128, 8, 1)
)
TILES = {80: LARGE_SHARED, 90: LARGE_SHARED, 100: LARGE_SHARED}
"""By capability, else SMALL_SHARED: two to four blocks a multiprocessor, by their shared memory,
with 50 KB of weights on the way; predicted from compiled code, none was timed on a card."""

FLOAT32 = Tile(64, 64, 4, 2)  # many rows: three products at once take more registers

COLUMNS = 64  # of a block, when segments are counted out
SEGMENT = 256  # segments are whole multiples of it
LEAST_SEGMENT = 512
MOST_SEGMENTS = 8
BLOCKS_EACH = 3  # blocks per multiprocessor that hide each other's waiting


def tiles_of(device: GpuDevice) -> Tiles:
    if device.place.type == "cpu":
        return INTERPRETED
    return TILES.get(device.card.capability, SMALL_SHARED)


def tile_for(device: GpuDevice, n: int, columns: int, half: bool) -> Tile:
    tiles = tiles_of(device)
    if n > FEW_ROWS:
        return tiles.many if half else FLOAT32
    if n > tiles.few.rows:
        return tiles.more
    return tiles.narrow if columns < tiles.few.columns * device.card.sms else tiles.few


def segment_of(device: GpuDevice, rows: int, inputs: int) -> int:
    """Inputs that one block sums up, of a pass of few rows; from shape and card alone."""
    blocks = triton.cdiv(rows, COLUMNS)
    wanted = min(BLOCKS_EACH * device.card.sms // blocks, MOST_SEGMENTS)
    segment = triton.cdiv(inputs, max(wanted, 1) * SEGMENT) * SEGMENT
    return min(max(segment, LEAST_SEGMENT), inputs)
