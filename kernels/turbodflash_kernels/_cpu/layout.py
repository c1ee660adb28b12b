"""How a planar matrix lies in memory on a CPU.

Sixteen output rows form a tile; a tile is one stream of blocks of 32 inputs. In a block, step s
holds the codes of inputs 4s..4s+3 of all sixteen rows: 64 codes, row-major. Codes are split into
bit planes (6 bits: 4 + 2); a plane of p bits packs the eight steps into p vectors of 64 bytes,
step s in vector s % p at bit p * (s // p). After the planes come the block's scales, then its
minima, sixteen lanes each: f16, or int8 when two-level or powers, or both as the nibbles of one
byte. In two-level formats each super-block of 256 inputs starts with sixteen f16 scales (and
minima). Dense formats: input by input, sixteen values.
"""

from __future__ import annotations

from turbodflash_kernels._cpu.memory import LINE
from turbodflash_kernels.planar import SUPER_BLOCK, Format

TILE = 16
BLOCK = 32
STEPS = 8
PRIVATE = 1 << 18  # of a thread's scratch: where it keeps activations that only it reads
PRIVATE_ROWS = 2
MOST_COLS = 1 << 16  # of quantised rows
PRIVATE_BYTES = PRIVATE_ROWS * (2 * MOST_COLS + LINE)
GROUP = 4  # activation rows that share the loads of decoded codes
PANEL = 64  # rows of activations that lie together, block by block
PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}
DENSE_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


def filled(rows: int) -> int:
    """Rows of activations as machines compute them that take groups: one short of a group is
    filled up with whatever lies there, and what comes of that is dropped.
    """
    return rows + 1 if rows % GROUP == GROUP - 1 else rows


def row_stride(nbytes: int) -> int:
    """Bytes from one row to the next where the same place of many rows is read: an odd number of
    cache lines. Rows a power of two apart would share a few sets of the cache.
    """
    return (-(-nbytes // LINE) | 1) * LINE


def code_bytes(fmt: Format) -> int:
    """Bytes of the bit planes of one block."""
    return TILE * BLOCK * fmt.bits // 8


def factor_bytes(fmt: Format) -> int:
    """Bytes of one set of sixteen block scales (or minima)."""
    return TILE * (1 if fmt.two_level or fmt.powers else 2)


def factor_offset(fmt: Format, kind: int, part: int) -> int:
    """Where in a block the scales (kind 0) or minima (1) of a part stand."""
    parts = BLOCK // fmt.block
    return code_bytes(fmt) + factor_bytes(fmt) * (part if fmt.nibbles else kind * parts + part)


def block_bytes(fmt: Format) -> int:
    last = factor_offset(fmt, 1 if fmt.affine else 0, BLOCK // fmt.block - 1)
    return last + factor_bytes(fmt)


def header_bytes(fmt: Format) -> int:
    """Bytes before the blocks of a super-block."""
    return TILE * 2 * (2 if fmt.affine else 1) if fmt.two_level else 0


def tile_bytes(fmt: Format, cols: int) -> int:
    if fmt.dense:
        return TILE * cols * DENSE_BYTES[fmt.dense]
    supers = cols // SUPER_BLOCK if fmt.two_level else 0
    return cols // BLOCK * block_bytes(fmt) + supers * header_bytes(fmt)


def spec_name(fmt: Format) -> str:
    """A name for a format, as part of a kernel's name."""
    if fmt.dense:
        return fmt.dense
    kind = "table" if fmt.table else f"zero{fmt.zero}" if not fmt.affine else "affine"
    return f"b{fmt.bits}_{kind}_{fmt.block}" + ("_two" if fmt.two_level else "")
