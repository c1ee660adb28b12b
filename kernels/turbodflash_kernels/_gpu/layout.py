"""How matrices lie in a GPU's memory, and how they come to lie so.

Quantised rows are cut into sub-tiles of 32 rows times as many inputs as sixteen 32-bit words hold
the codes of: 64 of 8 bits, 128 of 4, 5 or 6, 256 of 2 or 3; codes of a table take 4 bits. A
sub-tile is one stream of 2 KB, its rows one after the other; the sub-tiles of 32 rows follow each
other along the inputs. Inside:

- A half word (16 bits) holds one code of each *plane*, plane p at bit p * base; a plane is 32
  inputs in a row, word j holds their numbers 2j (lower half) and 2j + 1 (upper half). The base is
  8, 4 or 2 bits.
- What a code has above its base, the *high* bits, lies in tiles of their own, for 256 inputs at
  once: per word two bytes (3 and 5 bits) or four (6), see `high_place`.
- Scales are float16, in tiles of their own, paired into words: with its minimum, or with the next
  block's. Scales in two levels are multiplied out in float32 and rounded once; a minimum then takes
  up what the rounding changed in the middle of the codes. Bytes per weight:

      8 bits 1.0625   6 bits 0.875   5 bits 0.75, without minima 0.6875
      4 bits 0.625, without minima 0.5625   3 bits 0.5   2 bits 0.5

Dense rows are float16 (bf16 too) or float32, one after the other.

Each row has a *unit*, a power of two that its float16 numbers are multiples of: largest weights lie
between 2^12 and 2^14, so that what is small beside them keeps its bits. Inputs are filled up to
whole sub-tiles with zeros, rows to whole tiles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from turbodflash_kernels.planar import SUPER_BLOCK, Format, Planar

TILE_ROWS = 32
PLANE = 32  # inputs
WORDS = 16  # of a row of a sub-tile
HIGH_INPUTS = 256  # of a tile of high bits
LEAST = 128  # inputs are filled up to a multiple of it
TOP = 14  # the largest weight of a row is below 2^14 units


class Coding(NamedTuple):
    """The shape of a quantised format's tiles, per row.

    inputs: of a sub-tile. scales: its words of scales.
    high: bytes of high bits that go with a word of 256 inputs, or 0.
    """

    inputs: int
    scales: int
    high: int

    @property
    def planes(self) -> int:
        return self.inputs // PLANE

    @property
    def base(self) -> int:
        """Bits of a code that lie in the words."""
        return 16 // self.planes


def coding(format: Format) -> Coding:
    bits = 4 if format.table else format.bits
    base = 8 if bits == 8 else 2 if bits < 4 else 4
    inputs = 16 // base * PLANE
    numbers = inputs // format.block * (2 if format.affine else 1)
    return Coding(inputs, numbers // 2, (bits - base) * HIGH_INPUTS // (8 * WORDS))


def bytes_per_weight(format: Format) -> float:
    if format.dense:
        return 4.0 if format.dense == "f32" else 2.0
    shape = coding(format)
    words = 4 * (WORDS + shape.scales) / shape.inputs
    return words + WORDS * shape.high / HIGH_INPUTS


def padded_cols(format: Format, cols: int) -> int:
    whole = not format.dense and (coding(format).high or coding(format).inputs == HIGH_INPUTS)
    step = HIGH_INPUTS if whole else LEAST
    return -(-cols // step) * step


def table_words(format: Format) -> tuple[int, ...]:
    """The sixteen values plus 128, as the bytes of four int32 words; empty without a table."""
    values = np.resize(np.array(format.table, np.int16) + 128, 16 if format.table else 0)
    return tuple(values.astype(np.uint8).view(np.int32).tolist())


class Packed(NamedTuple):
    """Some rows, packed: arrays with an axis of tiles, or of rows where dense, in front.

    unit: float32 [rows]. values: dense, [rows, inputs].
    words: int32 [tiles, sub-tiles, 32, 16]. scales: int32 [tiles, sub-tiles, 32, words].
    high: int16 or int32 [tiles, 256 inputs, 32, 16]. What a format has not is absent.
    """

    unit: torch.Tensor
    values: torch.Tensor | None = None
    words: torch.Tensor | None = None
    scales: torch.Tensor | None = None
    high: torch.Tensor | None = None


def shapes(
    format: Format, rows: int, cols: int
) -> dict[str, tuple[tuple[int, ...], type[np.generic]]]:
    """Shape and type of each array that a matrix of that format has."""
    inputs = padded_cols(format, cols)
    if format.dense:
        kind = np.float32 if format.dense == "f32" else np.float16
        return {"unit": ((rows,), np.float32), "values": ((rows, inputs), kind)}
    shape = coding(format)
    tiles = -(-rows // TILE_ROWS)
    front = (tiles, inputs // shape.inputs, TILE_ROWS)
    found: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
        "unit": ((tiles * TILE_ROWS,), np.float32),
        "words": ((*front, WORDS), np.int32),
        "scales": ((*front, shape.scales), np.int32),
    }
    if shape.high:
        high = (tiles, inputs // HIGH_INPUTS, TILE_ROWS, WORDS)
        found["high"] = (high, np.int32 if shape.high == 4 else np.int16)
    return found


def pack(planar: Planar, place: torch.device) -> Packed:
    """All of it is done where the weights will lie: the host only decodes."""
    format = planar.format
    if format.dense:
        return _dense(_sent(planar.codes, place), format)
    scale, minimum, unit = _factors(planar, place)
    words, high = _words(_sent(planar.codes, place), format)
    shape = coding(format)
    pairs = scale if minimum is None else torch.stack((scale, minimum), dim=-1)
    scales = _tiled(pairs.reshape(len(unit), -1).view(torch.int32), shape.scales)
    return Packed(unit, None, words, scales, high)


def _sent(values: np.ndarray, place: torch.device) -> torch.Tensor:
    own = np.require(values, requirements=("C", "W"))  # a file's own bytes may only be read
    if own.dtype == np.uint16:  # bf16
        own = own.view(np.int16)
    return torch.from_numpy(own).to(place)


def _dense(values: torch.Tensor, format: Format) -> Packed:
    unit = torch.ones(len(values), device=values.device)
    inputs = padded_cols(format, values.shape[1])
    if format.dense == "bf16":
        wide = values.view(torch.bfloat16).float()
        unit = _unit(wide.abs().amax(dim=1))
        values = (wide / unit[:, None]).half()
    return Packed(unit, _filled(values, len(values), inputs))


def _unit(largest: torch.Tensor) -> torch.Tensor:
    exponent = torch.frexp(largest).exponent.clamp(-100, 100)
    return torch.ldexp(torch.ones_like(largest), exponent - TOP)


def _factors(
    planar: Planar, place: torch.device
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Scales and minima float16 [rows, blocks] in units, filled up; and the units."""
    format = planar.format
    assert planar.scale is not None
    inputs = padded_cols(format, planar.codes.shape[1])
    rows = -(-len(planar.codes) // TILE_ROWS) * TILE_ROWS
    exact = _factor(planar.scale, planar.super_scale, format, place)
    reach = max(map(abs, format.table)) if format.table else 2**format.bits - 1
    largest = exact.abs() * max(reach - format.zero, format.zero)
    low = None
    if format.affine:
        assert planar.min is not None
        low = _factor(planar.min, planar.super_min, format, place)
        largest = largest + low.abs()
    unit = _unit(largest.amax(dim=1))
    exact = exact / unit[:, None]
    scale = exact.half()
    blocks = inputs // format.block
    if low is not None:
        middle = (2**format.bits - 1) / 2
        low = (low / unit[:, None] + middle * (exact - scale.float())).half()
        low = _filled(low, rows, blocks)
    return _filled(scale, rows, blocks), low, torch.nn.functional.pad(unit, (0, rows - len(unit)))


def _factor(
    block: np.ndarray, above: np.ndarray | None, format: Format, place: torch.device
) -> torch.Tensor:
    factor = _sent(block, place).float()
    if format.powers:
        return _powers_of_two(factor.int())
    if above is None:
        return factor
    raised = _sent(above, place).float() * 2.0**format.exponent
    return factor * raised.repeat_interleave(SUPER_BLOCK // format.block, dim=1)


def _powers_of_two(exponents: torch.Tensor) -> torch.Tensor:
    """2 ** exponent as float32, for -128 to 127; as two factors, for the lowest are subnormal."""
    half = exponents >> 1
    first, second = (((part + 127) << 23).view(torch.float32) for part in (half, exponents - half))
    return first * second


def _words(codes: torch.Tensor, format: Format) -> tuple[torch.Tensor, torch.Tensor | None]:
    shape = coding(format)
    rows = -(-len(codes) // TILE_ROWS) * TILE_ROWS
    codes = _filled(codes, rows, padded_cols(format, codes.shape[1]))
    planes = codes.view(rows, -1, shape.planes, PLANE)
    halves = planes[:, :, 0].short() & (2**shape.base - 1)
    for plane in range(1, shape.planes):
        halves |= (planes[:, :, plane].short() & (2**shape.base - 1)) << (shape.base * plane)
    words = _tiled(halves.view(rows, -1).view(torch.int32), WORDS)
    return words, _high(planes >> shape.base, format) if shape.high else None


def high_place(format: Format, plane: int) -> int:
    """The lowest bit of the high bits of a plane, of eight or more in 256 inputs, in a half.

    A half is 16 bits of a word, or a byte where there are two. Planes whose codes lie in one byte
    of a half come to their places together, by one shift: right above the bases of their codes.
    """
    base = coding(format).base
    group, above = plane * base // 8, plane * base % 8 + base
    if format.bits == 6:
        return above - 4 + 2 * (group % 2) + 8 * (group // 2)
    return above - base + group


def _high(above: torch.Tensor, format: Format) -> torch.Tensor:
    """above: uint8 [rows, sub-tiles, planes, 32]."""
    rows, wide = len(above), coding(format).high == 4
    above = above.reshape(rows, -1, HIGH_INPUTS // PLANE, WORDS, 2)
    high = torch.zeros(
        (rows, above.shape[1], WORDS),
        dtype=torch.int32 if wide else torch.int16,
        device=above.device,
    )
    for plane in range(above.shape[2]):
        for half in (0, 1):
            bits = above[:, :, plane, :, half].to(high.dtype)
            high |= bits << (high_place(format, plane) + (16 if wide else 8) * half)
    return _tiled(high.view(rows, -1), WORDS)


def _tiled(values: torch.Tensor, each: int) -> torch.Tensor:
    """[rows, sub-tiles * each] -> [tiles, sub-tiles, 32, each]."""
    tiles = len(values) // TILE_ROWS
    return values.view(tiles, TILE_ROWS, -1, each).transpose(1, 2)


def _filled(values: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
    """With zeros, up to that size."""
    missing = (0, cols - values.shape[1], 0, rows - values.shape[0])
    return torch.nn.functional.pad(values, missing) if any(missing) else values
