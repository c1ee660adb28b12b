"""What a row of a tree sees, copied into one chunk of keys and values."""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu.kv import CHUNK
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    load_u16,
    store_f32,
    store_i16,
    store_i64,
)

inline = numba.njit(error_model="numpy")


def places(format_k: str, format_v: str):
    """Where a position's key and value lie."""
    k_size, v_size = (4 if format_k == "f32" else 2), (4 if format_v == "f32" else 2)

    @inline
    def key_at(k, position, head_dim):
        return k + (position // 16 * head_dim * 16 + position % 16) * k_size

    @inline
    def value_at(v, position, head_dim):
        return v + position * head_dim * v_size

    return key_at, value_at


def gather(format_k: str, format_v: str):
    """Two steps: what lies before a tree, which all rows share, and then the path of one row."""
    wide_k = format_k == "f32"
    k_size, v_size = (4 if wide_k else 2), (4 if format_v == "f32" else 2)
    key_at, value_at = places(format_k, format_v)

    @inline
    def copy_key(source, head_dim, to):
        for i in range(head_dim):
            if wide_k:
                store_f32(to + 64 * i, load_f32(source + 64 * i))
            else:
                store_i16(to + 32 * i, load_u16(source + 32 * i))

    @inline
    def copy_words(source, nbytes, to):
        for i in range(0, nbytes, 8):
            store_i64(to + i, load_i64(source + i))

    @inline
    def shared(k, v, start, count, head_dim, keys, values):
        """The first `count` positions from `start` on; of keys, those that share the last sixteen
        come along."""
        blocks = (count + 15) // 16 * 16
        copy_words(key_at(k, start, head_dim), blocks * head_dim * k_size, keys)
        copy_words(value_at(v, start, head_dim), count * head_dim * v_size, values)

    @inline
    def path(k, v, root, parents, row, last, first, head_dim, keys, values):
        """The row and its ancestors, which stand at places last, last - 1, ... down to `first`.

        root: the slot of row 0. Places from CHUNK on are another chunk's.
        """
        for place in range(last, first - 1, -1):
            if place < CHUNK:
                slot = root + row
                copy_key(key_at(k, slot, head_dim), head_dim, key_at(keys, place, head_dim))
                copy_words(value_at(v, slot, head_dim), head_dim * v_size,
                           value_at(values, place, head_dim))  # fmt: skip
            row = load_i32(parents + 4 * row)

    return shared, path
