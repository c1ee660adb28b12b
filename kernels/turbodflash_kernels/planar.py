"""The planar form of weights: what every GGUF type becomes, once, at load.

Quantised:  w = s * (code - zero) + m        with a table: w = s * (table[code] - zero) + m
one-level:  s = scale[block],                    m = min[block]                  (f16)
powers:     s = 2 ** scale[block]                                                (int8)
two-level:  s = super_scale[256] * scale[block], m = super_min[256] * min[block] (f16 * int8)
Symmetric formats have no m. All products are taken in float32, in the order written here, which
makes `dequantize` bit-equal to the file format's own definition. Dense formats keep their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SUPER_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Format:
    """What the numbers of a planar matrix mean.

    bits: width of a code (2, 3, 4, 5, 6 or 8); 0 for a dense format.
    block: inputs that share a scale (16 or 32); 1 for a dense format.
    zero: subtracted from the code (symmetric formats); a power of two, or 0.
    affine: a minimum per block is added.
    two_level: block scales are int8 factors of an f16 scale per 256 inputs.
    nibbles: those factors are 0..15, a scale and a minimum share a byte.
    powers: block scales are int8 exponents of two; one-level and symmetric formats only.
    exponent: all scales of a symmetric two-level format are times 2 ** exponent.
    table: code -> value from -128 to 127, for the non-linear types; up to 2 ** bits values.
    dense: "f32", "f16" or "bf16" when the values are stored as they are, else "".
    """

    bits: int = 0
    block: int = 1
    zero: int = 0
    affine: bool = False
    two_level: bool = False
    nibbles: bool = False
    powers: bool = False
    exponent: int = 0
    table: tuple[int, ...] = ()
    dense: str = ""

    def bytes_per_weight(self) -> float:
        """Size of the planar form."""
        if self.dense:
            return {"f32": 4.0, "f16": 2.0, "bf16": 2.0}[self.dense]
        factors = 2 if self.affine else 1
        per_block = (
            (1 if self.two_level or self.powers else 2) * factors / self.block / (1 + self.nibbles)
        )
        per_super = 2 * factors / SUPER_BLOCK if self.two_level else 0.0
        return self.bits / 8 + per_block + per_super


@dataclass(slots=True)
class Planar:
    """Some rows of a matrix [rows, cols] in planar form, on the host.

    codes: uint8 [rows, cols], one code a byte; dense: float32, float16, or uint16 (bf16 bits).
    scale, min: float16 [rows, cols / block], or int8 when two-level or powers.
    super_scale, super_min: float16 [rows, cols / 256] when two-level.
    """

    format: Format
    codes: Array
    scale: Array | None = None
    min: Array | None = None
    super_scale: Array | None = None
    super_min: Array | None = None


def dequantize(planar: Planar) -> NDArray[np.float32]:
    """The weights as float32 [rows, cols]."""
    fmt, codes = planar.format, planar.codes
    if fmt.dense:
        return _dense_values(codes)
    values = np.take(np.asarray(fmt.table, np.float32), codes) if fmt.table else codes.astype("f4")
    if fmt.zero:
        values -= np.float32(fmt.zero)
    blocked = values.reshape(len(codes), -1, fmt.block)
    assert planar.scale is not None
    blocked *= _factor(planar.scale, planar.super_scale, fmt)[:, :, None]
    if fmt.affine:
        assert planar.min is not None
        blocked += _factor(planar.min, planar.super_min, fmt)[:, :, None]
    return blocked.reshape(codes.shape)


def _dense_values(values: Array) -> NDArray[np.float32]:
    if values.dtype == np.uint16:  # bf16: the upper half of a float32
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32)


def _factor(block: Array, above: Array | None, fmt: Format) -> NDArray[np.float32]:
    if fmt.powers:
        return np.ldexp(np.float32(1), block.astype(np.int32))
    factor = block.astype(np.float32)
    if above is None:
        return factor
    raised = np.ldexp(above.astype(np.float32), fmt.exponent)
    return np.repeat(raised, SUPER_BLOCK // fmt.block, axis=1) * factor
