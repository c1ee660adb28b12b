"""How long a pass takes at best: bytes over bandwidth, operations over rate, launches on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from turbodflash_engine.quant import weight_type
from turbodflash_engine.roofline.cards import Gpu
from turbodflash_engine.roofline.shapes import Attending, Shape
from turbodflash_kernels.kv import kv_type
from turbodflash_kernels.planar import Format

FEW_ROWS = 32
TILE, WIDE_TILE = 16, 128

LAUNCH_SECONDS = 2e-6  # of a kernel inside a graph
GRAPH_SECONDS = 15e-6  # of a graph, and of the copy to the host after it


class Cache(NamedTuple):
    """Types of keys and values."""

    type_k: str
    type_v: str

    def per_position(self, shape: Attending) -> float:
        """Bytes of all these layers at a position."""
        dim = shape.head_dim
        both = kv_type(self.type_k).row_bytes(dim) + kv_type(self.type_v).row_bytes(dim)
        return shape.layers * shape.kv_heads * both


@dataclass(frozen=True, slots=True)
class Pass:
    """nbytes: that are read. operations: multiplications and additions."""

    nbytes: float
    operations: float
    launches: int
    seconds: float


def one_pass(shape: Shape, gpu: Gpu, cache: Cache, *, rows: int, depth: int) -> Pass:
    """A pass over so many rows after `depth` positions, as one graph."""
    weights = _weight_reads(shape, rows)
    kept = sum(cache.per_position(each) * each.seen(depth) for each in shape.attending)
    state = 2 * shape.state * (1 if rows == 1 else 2)  # kept rows are told to the state once more
    reading = sum(nbytes / gpu.share(format) for format, nbytes in weights) + kept + state
    operations = _operations(shape, rows, depth)
    working = max(reading / gpu.bandwidth, operations / gpu.multiplied)
    return Pass(
        sum(nbytes for _, nbytes in weights) + kept + state,
        operations,
        shape.launches,
        working + shape.launches * LAUNCH_SECONDS + GRAPH_SECONDS,
    )


def _weight_reads(shape: Shape, rows: int) -> list[tuple[Format, float]]:
    """The bytes of each format; of experts, those that the rows choose."""
    numbers = list(shape.matrices.items())
    experts = shape.experts
    if experts:
        chosen = experts.distinct(rows) / experts.count
        numbers += [(type, chosen * count) for type, count in experts.matrices.items()]
    return [(_format(type), matrix_bytes(type, count)) for type, count in numbers]


def matrix_bytes(type: str, numbers: float) -> float:
    """Of so many weights of a type."""
    return _format(type).bytes_per_weight() * numbers


def _format(type: str) -> Format:
    return weight_type(type, "of a prediction").format


def _operations(shape: Shape, rows: int, depth: int) -> float:
    """Rows are multiplied in tiles; the head of a prompt takes its last row alone."""
    tiled = padded(rows)
    head = shape.head * (tiled if rows <= FEW_ROWS else padded(1))
    attended = sum(
        4.0 * each.layers * each.heads * each.head_dim * (each.seen(depth) + rows / 2)
        for each in shape.attending
    )
    return 2 * ((shape.active - shape.head) * tiled + head) + attended * rows


def padded(rows: int) -> int:
    """Rows that are computed for so many that were asked for."""
    tile = TILE if rows <= FEW_ROWS else WIDE_TILE
    return -(-rows // tile) * tile
