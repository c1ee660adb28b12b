"""A row's block of 32 activations, as integers, and what is known of it: one cache line.

Activations are x = unit * (factor * code + middle): int8 codes, a factor (1..127) and a middle (16
bits) per half block, one float unit per block. So the sum over a block of weight code * x is
unit * (factor_0 * P_0 + factor_1 * P_1 + middle_0 * C_0 + middle_1 * C_1), P and C being sums of
products and of weight codes: four integers, joined before anything is rounded.

A row is known by the address of its line: 32 codes, then eight words. Machines that multiply pairs
of 16 bits find a factor twice in its word.
"""

from __future__ import annotations

HALVES = (range(0, 4), range(4, 8))  # the steps of a block's halves
INPUTS = 16  # in a half
MOST_INPUT = 127  # the largest size of a code

INFO = 32  # int32 (or float32) words, in the order in which they lie
UNIT, SUM, FACTORS, MIDDLES, ZEROS, TAKEN = 32, 36, (40, 44), 48, (52, 56), 60
MOST_ZERO = 128
"""ZEROS: what a zero of 1 takes from the sum of a half. TAKEN: what one of 128 adds to that of all,
the largest there is: the others are powers of two, too."""
