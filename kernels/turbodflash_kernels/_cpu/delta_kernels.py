"""Where things lie that the kernels of a delta net share."""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu.delta_words import (
    GATES,
    GATES_BYTES,
    HEAD_DIM,
    KEY_HEADS,
    PLACES,
    ROOM,
    TABLE,
    TAP_COUNT,
    VALUE_HEADS,
    WAITING,
    WINDOW,
    X_STRIDE,
    X,
)
from turbodflash_kernels._cpu.simd import load_i64

inline = numba.njit(error_model="numpy", forceinline=True)


@inline
def all_heads(args):
    """Of queries, keys and values."""
    return 2 * load_i64(args + KEY_HEADS) + load_i64(args + VALUE_HEADS)


@inline
def channels_bytes(args):
    return 4 * all_heads(args) * load_i64(args + HEAD_DIM)


@inline
def pending_bytes(args):
    return channels_bytes(args) + 8 * load_i64(args + VALUE_HEADS)


@inline
def raw(args, row, base):
    """A row before it was convolved: of the window (below 0), of pending rows, from `base` on of x.

    The numbers of q, k and v come first.
    """
    if row >= base:
        return load_i64(args + X) + (row - base) * load_i64(args + X_STRIDE)
    if row >= 0:
        return load_i64(args + WAITING) + row * pending_bytes(args)
    return load_i64(args + WINDOW) + (load_i64(args + TAP_COUNT) - 1 + row) * channels_bytes(args)


@inline
def raw_gates(args, row, base):
    """beta and alpha of a row that is not the window's; in x, z stands before them."""
    z = 4 * load_i64(args + VALUE_HEADS) * load_i64(args + HEAD_DIM)
    return raw(args, row, base) + channels_bytes(args) + (z if row >= base else 0)


@inline
def place_of(args, row, base):
    return row if row < base else row - base + load_i64(args + ROOM)


@inline
def head_at(args, head, place):
    """A head of q, k or v in the table."""
    row = head * load_i64(args + PLACES) + place
    return load_i64(args + TABLE) + 4 * row * load_i64(args + HEAD_DIM)


@inline
def gates_at(args, value_head, place):
    return load_i64(args + GATES) + (value_head * load_i64(args + PLACES) + place) * GATES_BYTES
