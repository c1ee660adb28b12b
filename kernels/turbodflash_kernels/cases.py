"""Random inputs for the sweeps over ops: every weight format, seeded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Part
from turbodflash_kernels.planar import SUPER_BLOCK, Format, Planar

Values = dict[str, NDArray[Any]]

TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
GRID = (8, 25, 43, 43, -8, -25, -43, -43)
SMALL_TABLE = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

FORMATS = {
    "4-affine": Format(bits=4, block=32, affine=True),
    "5-affine": Format(bits=5, block=32, affine=True),
    "4-zero8": Format(bits=4, block=32, zero=8),
    "5-zero16": Format(bits=5, block=32, zero=16),
    "8-zero128": Format(bits=8, block=32, zero=128),
    "4-table": Format(bits=4, block=32, table=TABLE),
    "4-two-level-affine": Format(bits=4, block=32, affine=True, two_level=True),
    "5-two-level-affine": Format(bits=5, block=32, affine=True, two_level=True),
    "2-two-level-nibbles": Format(bits=2, block=16, affine=True, two_level=True, nibbles=True),
    "3-two-level-zero4": Format(bits=3, block=16, zero=4, two_level=True),
    "6-two-level-zero32": Format(bits=6, block=16, zero=32, two_level=True),
    "4-two-level-table": Format(bits=4, block=32, table=TABLE, two_level=True),
    "2-two-level-zero1": Format(bits=2, block=32, zero=1, two_level=True),
    "3-two-level-table": Format(bits=3, block=16, table=GRID, two_level=True, exponent=-3),
    "4-table-16": Format(bits=4, block=16, table=SMALL_TABLE),
    "4-table-powers": Format(bits=4, block=32, table=SMALL_TABLE, powers=True),
    "f32": Format(dense="f32"),
    "f16": Format(dense="f16"),
    "bf16": Format(dense="bf16"),
}


class Case(Protocol):
    """One use of an op.

    rows: how many rows of input the case is about.
    lossy_weights: a device may round the activations (see the op `linear`).
    """

    @property
    def rows(self) -> int: ...
    @property
    def lossy_weights(self) -> bool: ...

    def inputs(self, rows: int) -> Values:
        """Host inputs of that many rows; the first rows are the same for every `rows`."""
        ...

    def bind(self, device: Device) -> Callable[[Values], Values]:
        """The op on a device, from host inputs to host outputs; all have a row axis in front."""
        ...


def random_part(name: str, rows: int, cols: int, seed: int) -> Part:
    """A part of a matrix in the format of that name, whose weights are about 1 / sqrt(cols).

    It is made when it is first asked for: a device that computes nothing asks for none.
    """
    fmt = FORMATS[name]

    @cache
    def planar() -> Planar:
        random = np.random.default_rng([seed, rows, cols])
        return _dense(fmt, rows, cols, random) if fmt.dense else _coded(fmt, rows, cols, random)

    return Part(fmt, rows, lambda start, stop: _rows_of(planar(), start, stop))


def normal(rows: int, cols: int, seed: int) -> NDArray[np.float32]:
    """Standard normal float32 [rows, cols]; a row does not depend on how many there are."""
    return np.random.default_rng(seed).standard_normal((rows, cols), np.float32)


def _dense(fmt: Format, rows: int, cols: int, random: np.random.Generator) -> Planar:
    values = (random.standard_normal((rows, cols)) / np.sqrt(cols)).astype(np.float32)
    if fmt.dense == "bf16":
        return Planar(fmt, (values.view(np.uint32) >> 16).astype(np.uint16))
    return Planar(fmt, values.astype(fmt.dense.replace("f", "float")))


def _coded(fmt: Format, rows: int, cols: int, random: np.random.Generator) -> Planar:
    """Scales of both signs: formats allow them and real files hold them."""
    reach = max(map(abs, fmt.table)) if fmt.table else 2 ** (fmt.bits - 1)
    unit = 1 / (reach * np.sqrt(cols))
    codes = random.integers(0, 2**fmt.bits, (rows, cols), np.uint8)
    planar = Planar(fmt, codes)
    blocks, above = (rows, cols // fmt.block), (rows, cols // SUPER_BLOCK)
    for factor in ("scale", "min") if fmt.affine else ("scale",):
        spread = unit if factor == "scale" else -unit * 2 ** (fmt.bits - 1)
        signs = random.choice([-1, 1], blocks)
        if fmt.two_level:
            values = random.integers(1, 16 if fmt.nibbles else 64, blocks)
            setattr(planar, factor, (values if fmt.nibbles else signs * values).astype(np.int8))
            high = random.uniform(0.5, 1.5, above) * spread / 32 / 2.0**fmt.exponent
            setattr(planar, f"super_{factor}", high.astype(np.float16))
        elif fmt.powers:
            near = round(np.log2(unit))
            setattr(planar, factor, random.integers(near - 1, near + 2, blocks).astype(np.int8))
        else:
            low = signs * random.uniform(0.5, 1.5, blocks) * spread
            setattr(planar, factor, low.astype(np.float16))
    return planar


def _rows_of(planar: Planar, start: int, stop: int) -> Planar:
    factors = (planar.scale, planar.min, planar.super_scale, planar.super_min)
    cut = [None if factor is None else factor[start:stop] for factor in factors]
    return Planar(planar.format, planar.codes[start:stop], *cut)
