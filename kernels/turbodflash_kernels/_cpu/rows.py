"""A row's block of 32 activations, as integers, and what is known of it.

Activations are x = unit * (factor * code + middle): int8 codes, a factor (1..127) and a middle (16
bits) per half block, one float unit per block. So the sum over a block of weight code * x is
unit * (factor_0 * P_0 + factor_1 * P_1 + middle_0 * C_0 + middle_1 * C_1), P and C being sums of
products and of weight codes: four integers, joined before anything is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from turbodflash_kernels._cpu import layout

HALVES = (range(0, 4), range(4, 8))  # the steps of a block's halves
INPUTS = 16  # in a half

# int32 (or float32) words about a row's block of 32 activations, in the order in which they lie
INFO_BYTES = 4 * layout.INFO_WORDS
UNIT, SUM, FACTORS, MIDDLES, ZEROS, ALL_ZEROS = 0, 4, (8, 12), 16, (20, 24), 28


@dataclass(slots=True)
class Row:
    """Addresses of a row's block: its 32 codes, and its info."""

    codes: ir.Value
    info: ir.Value
