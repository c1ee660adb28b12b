"""Where a head's key lies among sixteen, and what a row of a tree sees as one chunk of its own."""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu.kv_words import (
    BLOCKS_K,
    CHUNK,
    CHUNK_BYTES,
    CHUNKS,
    FIELDS_K,
    K_HEAD,
    K_TILE,
    MEMORY,
    UNIT_K,
    UNITS_K,
    V_AT,
    V_HEAD,
    V_ROW,
)
from turbodflash_kernels._cpu.simd import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    store_i8,
    store_i16,
    store_i32,
    store_i64,
)

inline = numba.njit(error_model="numpy")


@inline
def chunk_at(kv, chunk):
    return load_i64(kv + MEMORY) + chunk % load_i64(kv + CHUNKS) * load_i64(kv + CHUNK_BYTES)


@inline
def keys_at(kv, chunk, head):
    """Where the keys of a chunk lie."""
    return chunk_at(kv, chunk) + head * load_i64(kv + K_HEAD)


@inline
def values_at(kv, chunk, head):
    """Where the values of a chunk lie."""
    return chunk_at(kv, chunk) + load_i64(kv + V_AT) + head * load_i64(kv + V_HEAD)


@inline
def copy_bytes(source, count, to):
    words = count // 8 * 8
    for i in range(0, words, 8):
        store_i64(to + i, load_i64(source + i))
    for i in range(words, count):
        store_i8(to + i, load_u8(source + i))


@inline
def copy_pieces(source, step, size, count, to, to_step):
    """`count` pieces of `size` bytes, so far apart."""
    if size == 4:
        for i in range(count):
            store_i32(to + i * to_step, load_i32(source + i * step))
    elif size == 2:
        for i in range(count):
            store_i16(to + i * to_step, load_u16(source + i * step))
    else:
        for i in range(count):
            store_i8(to + i * to_step, load_u8(source + i * step))


@inline
def put_key(kv, row, tile, lane):
    """The row of bytes of a key, as a lane of a tile."""
    fields, units, unit = load_i64(kv + FIELDS_K), load_i64(kv + UNITS_K), load_i64(kv + UNIT_K)
    for _ in range(load_i64(kv + BLOCKS_K)):
        copy_pieces(row, 2, 2, fields, tile + 2 * lane, 32)
        row, tile = row + 2 * fields, tile + 32 * fields
        copy_pieces(row, unit, unit, units, tile + unit * lane, 16 * unit)
        row, tile = row + unit * units, tile + 16 * unit * units


@inline
def copy_key(kv, source, lane, to, to_lane):
    """A lane of one tile becomes a lane of another."""
    fields, units, unit = load_i64(kv + FIELDS_K), load_i64(kv + UNITS_K), load_i64(kv + UNIT_K)
    for _ in range(load_i64(kv + BLOCKS_K)):
        copy_pieces(source + 2 * lane, 32, 2, fields, to + 2 * to_lane, 32)
        source, to = source + 32 * fields, to + 32 * fields
        step = 16 * unit
        copy_pieces(source + unit * lane, step, unit, units, to + unit * to_lane, step)
        source, to = source + step * units, to + step * units


@inline
def shared(kv, k, v, count, keys, values):
    """The first `count` positions of the chunk at k, v; of keys, whole tiles."""
    copy_bytes(k, (count + 15) // 16 * load_i64(kv + K_TILE), keys)
    copy_bytes(v, count * load_i64(kv + V_ROW), values)


@inline
def path(kv, head, root, parents, row, last, first, keys, values):
    """The row and its ancestors, which stand at places last, last - 1, ... down to `first`.

    root: the slot of row 0. Places from CHUNK on are another chunk's.
    """
    tile, v_row = load_i64(kv + K_TILE), load_i64(kv + V_ROW)
    for place in range(last, first - 1, -1):
        if place < CHUNK:
            slot = root + row
            k, at = keys_at(kv, slot // CHUNK, head), slot % CHUNK
            copy_key(kv, k + at // 16 * tile, at % 16, keys + place // 16 * tile, place % 16)
            v = values_at(kv, slot // CHUNK, head) + at * v_row
            copy_bytes(v, v_row, values + place * v_row)
        row = load_i32(parents + 4 * row)
