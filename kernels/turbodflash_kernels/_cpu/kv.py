"""Keys and values of one layer on the CPU, in the types they are stored in.

Positions lie in chunks of 128, the unit of attention: the keys of all heads, then the values. A
value is the row of bytes that its codec writes. Keys lie in tiles of sixteen, their rows cut into
fields (float16) and units (what holds a whole number of codes), so that lane after lane has the
same of sixteen keys: a field of all sixteen, the next, ..., a unit of all sixteen, the next, ...

A chunk's keys and values stand together so that a short text touches few pages of each layer. Of a
ring, chunks follow each other around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._cpu.kv_words import CHUNK, WORDS
from turbodflash_kernels._cpu.library import Library
from turbodflash_kernels._cpu.memory import zeros
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.device import moves
from turbodflash_kernels.kv import HeadFormat, Rotation
from turbodflash_kernels.kv._rotation import SIGNS_AFTER, SIGNS_BEFORE, TURBO_BLOCK

Bytes = NDArray[np.uint8]

TILE = 16
LEAST_PANEL = 32
MINIMA = ("q4_1", "q5_1")  # types whose blocks have a float16 minimum beside the scale
UNITS = {"q8_0": 1, "f16": 2, "bf16": 2}  # bytes of a unit; of the others, 4


@dataclass(frozen=True, slots=True)
class Rows:
    """How a row of bytes is cut: `blocks` times `fields` of two bytes and `units` of `unit`."""

    blocks: int
    fields: int
    units: int
    unit: int

    @classmethod
    def of(cls, format: HeadFormat) -> Rows:
        type = format.type
        unit = UNITS.get(type.name, 4)
        blocks = format.padded // type.block
        if not type.quantised:
            return cls(1, 0, blocks, unit)
        fields = 1 + (type.name in MINIMA)
        return cls(blocks, fields, (type.block_bytes - 2 * fields) // unit, unit)

    @cache  # noqa: B019 (rows are few, and the same in every layer)
    def places(self) -> NDArray[np.intp]:
        """Where each byte of the rows of a tile lies in it: [16, row_bytes]; do not change it."""
        sizes = [*[2] * self.fields, *[self.unit] * self.units] * self.blocks
        starts = np.cumsum([0, *sizes[:-1]]) * TILE
        lane = np.arange(TILE)[:, None]
        return np.hstack(
            [
                start + lane * size + np.arange(size)
                for start, size in zip(starts, sizes, strict=True)
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class CpuKV:
    """k: uint8 [chunks, kv_heads, tiles, tile_bytes]. v: uint8 [chunks, kv_heads, 128, row_bytes].

    words: what kernels are told, see kv_words.
    """

    format_k: HeadFormat
    format_v: HeadFormat
    k: Bytes
    v: Bytes
    words: NDArray[np.int64]
    places: NDArray[np.intp]
    ring: int
    flush: Callable[[], None]

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    @property
    def chunks(self) -> int:
        return len(self.k)

    @property
    def most_seen(self) -> int:
        """Chunks that one pass looks at, at most: of a ring, the first of them may end, and the
        last begin, in the same place.
        """
        return self.chunks + (self.ring > 0)

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """As KV.read."""
        k, v = self.rows(start, stop)
        return self.format_k.decode(k), self.format_v.decode(v)

    def rows(self, start: int, stop: int) -> tuple[Bytes, Bytes]:
        """As KV.rows."""
        self.flush()
        first = start // CHUNK
        chunks = np.arange(first, -(-stop // CHUNK)) % self.chunks
        tiles = self.k[chunks].swapaxes(1, 2)[..., self.places]  # chunk, tile, head, lane, byte
        k = tiles.swapaxes(2, 3).reshape(-1, *tiles.shape[2:3], tiles.shape[-1])
        v = self.v[chunks].swapaxes(1, 2).reshape(-1, *self.v.shape[1:2], self.v.shape[-1])
        here = slice(start - first * CHUNK, stop - first * CHUNK)
        return k[here], v[here].copy()

    def put_rows(self, start: int, k: Bytes, v: Bytes) -> None:
        """As KV.put_rows."""
        self.flush()
        for row, position in enumerate(range(start, start + len(k))):
            chunk, at = self._place(position)
            self.k[chunk, :, at // TILE, self.places[at % TILE]] = k[row].T
            self.v[chunk, :, at] = v[row]

    def move(self, sources: Sequence[int], to: int) -> None:
        """As KV.move."""
        self.flush()
        for source, target in moves(sources, to):
            (c, i), (d, j) = self._place(source), self._place(target)
            key = self.k[c, :, i // TILE, self.places[i % TILE]]
            self.k[d, :, j // TILE, self.places[j % TILE]] = key
            self.v[d, :, j] = self.v[c, :, i]

    def _place(self, position: int) -> tuple[int, int]:
        """Its chunk, and the place within."""
        return position // CHUNK % self.chunks, position % CHUNK


def make(
    format_k: HeadFormat,
    format_v: HeadFormat,
    positions: int,
    kv_heads: int,
    ring: int,
    library: Library,
    flush: Callable[[], None],
) -> CpuKV:
    rows = Rows.of(format_k)
    chunks = -(-positions // CHUNK)
    head_k, head_v = (CHUNK * format.row_bytes for format in (format_k, format_v))
    part_k, part_v = kv_heads * head_k, kv_heads * head_v
    memory = zeros(chunks * (part_k + part_v)).reshape(chunks, part_k + part_v)
    k = memory[:, :part_k].reshape(chunks, kv_heads, CHUNK // TILE, TILE * format_k.row_bytes)
    v = memory[:, part_k:].reshape(chunks, kv_heads, CHUNK, format_v.row_bytes)
    words = [address(memory), part_k + part_v, part_k, head_k, head_v]
    words += [TILE * format_k.row_bytes, format_v.row_bytes]
    words += [format_k.padded, summed(format_k), summed(format_v)]
    words += [_decoder(library, "keys", format_k), _decoder(library, "values", format_v)]
    words += [_pieces(format_k), _pieces(format_v)]
    words += [_encoder(library, format_k), _encoder(library, format_v)]
    words += [float_word(_most(format_k)), float_word(_most(format_v))]
    words += [rows.blocks, rows.fields, rows.units, rows.unit]
    turns = [_turn(format.rotation) for format in (format_k, format_v)]
    turn = library.address("_cpu.turn_kernels", "rotate") if any(turns) else 0
    words += [*turns, address(SIGNS), turn, chunks]
    for format, module, names in (
        (format_k, "byte_kernels", ("queries", "scores")),
        (format_v, "byte_value_kernels", ("weights", "sums")),
    ):
        words += _of_bytes(library, format, module, names) or _in_integers(library, format, *names)
    words += _panel(format_v)
    assert len(words) == WORDS
    return CpuKV(format_k, format_v, k, v, np.array(words, np.int64), rows.places(), ring, flush)


SIGNS = np.concatenate([SIGNS_BEFORE, SIGNS_AFTER])


def _decoder(library: Library, side: str, format: HeadFormat) -> int:
    return library.address("_cpu.decode_kernels", side, format.type.name, library.isa)


def _in_integers(library: Library, format: HeadFormat, rounding: str, product: str) -> list[int]:
    """Kernels that multiply whole numbers: of turbo4, of heads that fill half a block."""
    half = format.half_filled and format.head_dim < format.type.block
    if format.type.name != "turbo4" or not half or library.isa == "generic":
        return [0, 0]
    return [
        library.address("_cpu.rounding_kernels", rounding),
        library.address("_cpu.integer_kernels", product),
    ]


def _of_bytes(
    library: Library, format: HeadFormat, module: str, names: tuple[str, str]
) -> list[int]:
    """Kernels that multiply q8_0 as the bytes they are."""
    if format.type.name != "q8_0" or library.isa != "avx512_vnni":
        return []
    return [library.address(f"_cpu.{module}", name) for name in names]


def _encoder(library: Library, format: HeadFormat) -> int:
    return library.address("_cpu.encode_kernels", "encode", format.type.name, library.isa)


def summed(format: HeadFormat) -> int:
    """Numbers of a head that attention meets: those stored, less what only repeats others.

    A head that fills half a block is turned into two halves that are the same but for signs, and so
    is a query. So the halves are added up when they are decoded (see turbo_codes).
    """
    return format.head_dim if format.half_filled else format.padded


def _pieces(format: HeadFormat) -> int:
    """What decoders and encoders are told: how many blocks, or halves of turbo blocks."""
    if format.type.rotation == "turbo":
        return summed(format) // (TURBO_BLOCK // 2)
    return format.padded // format.type.block


def _panel(format: HeadFormat) -> list[int]:
    """Numbers of a panel of values, and their bytes: whole blocks."""
    numbers = max(format.type.block, LEAST_PANEL)
    return [numbers, numbers // format.type.block * format.type.block_bytes]


def _most(format: HeadFormat) -> float:
    """The largest float32 that is not over what the format can hold."""
    most = np.float32(format.most)
    return float(most if float(most) <= format.most else np.nextafter(most, np.float32(0)))


def _turn(rotation: Rotation) -> int:
    sign = {"none": 0, "hadamard": 1, "turbo": -1}
    return sign[rotation.kind] * rotation.block
