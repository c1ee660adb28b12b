"""A row's block of 32 activations, as integers, and what is known of it: one cache line.

Activations are x = unit * code + middle, with int8 codes, and a unit and a middle a block. So the
sum over a block of w * x is unit * scale * P + middle * W: P, the sum of products of codes, is an
exact integer, and W, the sum of the block's weights, is the same for all rows.

A row is known by the address of its line: 32 codes, then eight words.
"""

from __future__ import annotations

INPUTS = 16  # in a half: some formats have a scale for each
STEPS = 8  # of four inputs, that a block is multiplied in
MOST_INPUT = 127  # the largest size of a code

INFO = 32  # int32 (or float32) words, in the order in which they lie
UNIT, MIDDLE, SUM, TAKEN, SUMS, TAKENS = 32, 36, 40, 44, (48, 52), (56, 60)
MOST_ZERO = 128
"""SUM: unit times the sum of codes. TAKEN: what a zero of 128 adds to the sum of products, the
largest zero there is: the others are powers of two, too. SUMS and TAKENS: of halves."""
