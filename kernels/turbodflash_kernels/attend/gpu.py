"""`attend` on the GPU.

Few rows: keys are cut into splits at fixed positions; workers take them in turn, each for all rows,
and put down a partial result of every split, which `merge` adds up in order. Many rows: a program
takes 128 rows past all the keys that they see.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu.device import FEW_ROWS, GpuDevice
from turbodflash_kernels._gpu.hadamard import turned_back
from turbodflash_kernels._gpu.kv import TILE, GpuKV
from turbodflash_kernels._gpu.planes import load_norms, load_planes, of_head
from turbodflash_kernels._gpu.softmax import (
    NOTHING,
    fresh_state,
    load_places,
    load_queries,
    load_state,
    see,
    store_state,
)
from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.op import Array

LOG2_E = 1.4426950408889634
ROWS = 16  # of a tile; one instruction of a tensor core takes as many
TURBO = {"turbo2", "turbo3", "turbo4"}
VARYING = ["n", "end", "window", "q_stride"]


@triton.jit
def _furthest(positions, n, SEE_ALL: tl.constexpr):
    """The last position that every row sees: that of a block, else -1."""
    furthest = -1
    if SEE_ALL:
        for start in range(0, n, 64):
            row = start + tl.arange(0, 64)
            furthest = tl.maximum(
                furthest, tl.max(tl.load(positions + row, mask=row < n, other=-1), 0)
            )
    return furthest


@triton.jit
def _span(places, furthest, window, TILES: tl.constexpr, WINDOWED: tl.constexpr):
    """The first position that any row sees, and the end of those."""
    begin, end = 2**30, furthest + 1
    for t in tl.static_range(TILES):
        end = tl.maximum(end, tl.max(places[t], 0) + 1)
        if WINDOWED:
            begin = tl.minimum(begin, tl.min(tl.where(places[t] < 0, 2**30, places[t]), 0))
    begin = tl.maximum(begin + 1 - window, 0) if WINDOWED else 0
    return begin, end


@triton.jit
def _tile(
    tops, sums, totals, queries, places, furthest, window, keys, slots, k, k_beside, k_scales,
    v, v_beside, v_scales, TILES: tl.constexpr, WINDOWED: tl.constexpr,
    K: tl.constexpr, K_DIM: tl.constexpr, V: tl.constexpr, V_DIM: tl.constexpr,
):  # fmt: skip
    """The state after the keys at positions `keys`, which lie in `slots`."""
    key_planes = load_planes(k, k_beside, k_scales, slots, K, K_DIM)
    key_norms = load_norms(k_scales, slots, K, K_DIM)
    value_planes = load_planes(v, v_beside, v_scales, slots, V, V_DIM)
    value_norms = load_norms(v_scales, slots, V, V_DIM)
    return see(
        tops, sums, totals, queries, places, furthest, window, keys,
        key_planes, key_norms, value_planes, value_norms, TILES, WINDOWED, K, K_DIM, V, V_DIM,
    )  # fmt: skip


@triton.jit
def _slot(positions, RING: tl.constexpr):
    return positions % RING if RING else positions


@triton.jit(do_not_specialize=VARYING)
def split(
    q, q_stride, positions, n, scale, window, k, k_beside, k_scales, v, v_beside, v_scales,
    room, partials, peaks, splits,
    K: tl.constexpr, K_DIM: tl.constexpr, V: tl.constexpr, V_DIM: tl.constexpr,
    GROUP: tl.constexpr, TILES: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr, RING: tl.constexpr, SEE_ALL: tl.constexpr, TREE: tl.constexpr,
):  # fmt: skip
    """Splits worker, worker + workers, ... of one K/V head, for a block of rows.

    Of a tree, only the tiles that lie before its root's.
    """
    head, worker, rows = tl.program_id(0), tl.program_id(1), n * GROUP
    first = tl.program_id(2) * (16 * TILES)
    places = load_places(positions, first, rows, GROUP, 16, TILES)
    furthest = _furthest(positions, n, SEE_ALL)
    begin, end = _span(places, furthest, window, TILES, WINDOWED)
    if TREE:
        end = tl.load(positions) // KEYS * KEYS
    queries = load_queries(q, q_stride, head, first, rows, scale, GROUP, 16, TILES, K, K_DIM)
    k, k_beside, k_scales = of_head(k, k_beside, k_scales, head, room, K, K_DIM)
    v, v_beside, v_scales = of_head(v, v_beside, v_scales, head, room, V, V_DIM)
    for at in range(begin // SPLIT + worker, tl.cdiv(end, SPLIT), tl.num_programs(1)):
        tops, sums, totals = fresh_state(16, TILES, V, V_DIM)
        last = tl.minimum(end, (at + 1) * SPLIT)
        for start in range(tl.maximum(at * SPLIT, begin // KEYS * KEYS), last, KEYS):
            keys = start + tl.arange(0, KEYS)
            slots = _slot(keys, RING)
            tops, sums, totals = _tile(
                tops, sums, totals, queries, places, furthest, window, keys, slots, k, k_beside,
                k_scales, v, v_beside, v_scales, TILES, WINDOWED, K, K_DIM, V, V_DIM,
            )  # fmt: skip
        part = at % splits if RING else at
        base = (head.to(tl.int64) * splits + part) * rows
        store_state(partials, tops, sums, totals, peaks, base, first, rows, 16, TILES, V, V_DIM)


@triton.jit(do_not_specialize=VARYING)
def branch(
    q, q_stride, positions, parents, n, scale, window, k, k_beside, k_scales, v, v_beside,
    v_scales, room, partials, peaks, splits,
    K: tl.constexpr, K_DIM: tl.constexpr, V: tl.constexpr, V_DIM: tl.constexpr,
    GROUP: tl.constexpr, TILES: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr, RING: tl.constexpr,
):  # fmt: skip
    """One row of a tree, past the tiles from its root's on, with the keys that it sees in their
    positions' places: what the row's chain would find there. Goes on where `split` stopped.
    """
    head, token, rows = tl.program_id(0), tl.program_id(1), n * GROUP
    first, end = token * GROUP, (token + 1) * GROUP
    root, place = tl.load(positions), tl.load(positions + token)
    places = load_places(positions, first, end, GROUP, 16, TILES)
    queries = load_queries(q, q_stride, head, first, end, scale, GROUP, 16, TILES, K, K_DIM)
    k, k_beside, k_scales = of_head(k, k_beside, k_scales, head, room, K, K_DIM)
    v, v_beside, v_scales = of_head(v, v_beside, v_scales, head, room, V, V_DIM)
    begin = tl.maximum(place + 1 - window, 0) if WINDOWED else 0
    shared = root // KEYS * KEYS  # up to here `split` came
    start = tl.maximum(shared, begin // KEYS * KEYS)
    for at in range(start // SPLIT, place // SPLIT + 1):
        part = at % splits if RING else at
        base = (head.to(tl.int64) * splits + part) * rows
        resumed = tl.where(at * SPLIT < shared, end, first)
        tops, sums, totals = load_state(partials, peaks, base, first, resumed, 16, TILES, V, V_DIM)
        last = tl.minimum(place + 1, (at + 1) * SPLIT)
        for tile in range(tl.maximum(at * SPLIT, start), last, KEYS):
            keys = tile + tl.arange(0, KEYS)
            slots = _slots_of_path(keys, root, place, token, parents, RING)
            tops, sums, totals = _tile(
                tops, sums, totals, queries, places, -1, window, keys, slots, k, k_beside,
                k_scales, v, v_beside, v_scales, TILES, WINDOWED, K, K_DIM, V, V_DIM,
            )  # fmt: skip
        store_state(partials, tops, sums, totals, peaks, base, first, end, 16, TILES, V, V_DIM)


@triton.jit
def _slots_of_path(keys, root, place, row, parents, RING: tl.constexpr):
    """Where the keys lie that a tree's row at position `place` sees at positions `keys`."""
    slots = _slot(keys, RING)
    while row >= 0:
        slots = tl.where(keys == place, _slot(root + row, RING), slots)
        row = tl.load(parents + row)
        place -= 1
    return slots


@triton.jit(do_not_specialize=VARYING)
def prompt(
    q, q_stride, positions, n, scale, window, k, k_beside, k_scales, v, v_beside, v_scales,
    room, partials, peaks,
    K: tl.constexpr, K_DIM: tl.constexpr, V: tl.constexpr, V_DIM: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr, KEYS: tl.constexpr,
    WINDOWED: tl.constexpr, RING: tl.constexpr, SEE_ALL: tl.constexpr,
):  # fmt: skip
    """A block of rows of one K/V head, past all keys that they see; the last rows, which see most,
    come first."""
    head, rows = tl.program_id(1), n * GROUP
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * (ROWS * TILES)
    places = load_places(positions, first, rows, GROUP, ROWS, TILES)
    furthest = _furthest(positions, n, SEE_ALL)
    begin, end = _span(places, furthest, window, TILES, WINDOWED)
    queries = load_queries(q, q_stride, head, first, rows, scale, GROUP, ROWS, TILES, K, K_DIM)
    k, k_beside, k_scales = of_head(k, k_beside, k_scales, head, room, K, K_DIM)
    v, v_beside, v_scales = of_head(v, v_beside, v_scales, head, room, V, V_DIM)
    tops, sums, totals = fresh_state(ROWS, TILES, V, V_DIM)
    for start in range(begin // KEYS * KEYS, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        slots = _slot(keys, RING)
        tops, sums, totals = _tile(
            tops, sums, totals, queries, places, furthest, window, keys, slots, k, k_beside,
            k_scales, v, v_beside, v_scales, TILES, WINDOWED, K, K_DIM, V, V_DIM,
        )  # fmt: skip
    base = head.to(tl.int64) * rows
    store_state(partials, tops, sums, totals, peaks, base, first, rows, ROWS, TILES, V, V_DIM)


@triton.jit(do_not_specialize=VARYING)
def merge(
    partials, peaks, positions, n, window, splits, sinks, out,
    DIM: tl.constexpr, HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr,
    SPLIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
    ROTATION: tl.constexpr, TURNED: tl.constexpr, WINDOWED: tl.constexpr, SEE_ALL: tl.constexpr,
    HAS_SINKS: tl.constexpr, RING: tl.constexpr,
):  # fmt: skip
    """The results of ROWS query heads of tokens: each one's partial results in order, PARTS at a
    time, those that it sees nothing of not counted; turned back. SPLIT = 0: there is only one.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token, query, rows, inside = row // HEADS, row % HEADS, n * GROUP, row < n * HEADS
    base = (query // GROUP).to(tl.int64) * splits * rows + token * GROUP + query % GROUP
    first, last = tl.zeros_like(row), tl.where(inside, 0, -1)
    if SPLIT != 0:
        place = tl.load(positions + token, mask=inside, other=-1)
        if SEE_ALL:
            last = tl.where(inside, _furthest(positions, n, SEE_ALL) // SPLIT, -1)
        else:
            last = tl.where(inside, place // SPLIT, -1)
        if WINDOWED:
            first = tl.maximum(place + 1 - window, 0) // SPLIT
    begin, end = 0, tl.max(last, 0) + 1
    if WINDOWED:
        begin = tl.min(tl.where(inside, first, end), 0) // PARTS * PARTS
    top, sums = tl.full([ROWS], NOTHING, tl.float32), tl.zeros([ROWS], tl.float32)
    if HAS_SINKS:
        top = tl.load(sinks + query, mask=inside, other=0.0) * 1.4426950408889634
    sink = top
    for start in range(begin, end, PARTS):
        at, seen = _parts(start, first, last, base, rows, splits, PARTS, RING)
        top = tl.maximum(top, tl.max(tl.load(peaks + 2 * at, mask=seen, other=NOTHING), 1))
    if HAS_SINKS:
        sums = tl.exp2(sink - top)
    column = tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(begin, end, PARTS):
        at, seen = _parts(start, first, last, base, rows, splits, PARTS, RING)
        share = tl.exp2(tl.load(peaks + 2 * at, mask=seen, other=NOTHING) - top[:, None])
        sums += tl.sum(tl.load(peaks + 2 * at + 1, mask=seen, other=0.0) * share, 1)
        of = partials + (at * DIM)[:, :, None] + column[None, None, :]
        part = tl.load(of, mask=seen[:, :, None] & (column < DIM)[None, None, :], other=0.0)
        total += tl.sum(part * share[:, :, None], 1)
    result = total / tl.where(inside, sums, 1.0)[:, None]
    if ROTATION != "none":
        flat = turned_back(tl.reshape(result, [ROWS * BLOCK]), ROWS * BLOCK, ROTATION, TURNED)
        result = tl.reshape(flat, [ROWS, BLOCK])
    to = out + (row.to(tl.int64) * HEAD_DIM)[:, None] + column[None, :]
    tl.store(to, result, mask=inside[:, None] & (column < HEAD_DIM)[None, :])


@triton.jit
def _parts(
    start, first, last, base, rows, splits, PARTS: tl.constexpr, RING: tl.constexpr
):  # fmt: skip
    """Where PARTS partial results of each row are [rows, PARTS], and which of them count."""
    part = (start + tl.arange(0, PARTS))[None, :]
    seen = (part >= first[:, None]) & (part <= last[:, None])
    place = part % splits if RING else part
    return base[:, None] + place.to(tl.int64) * rows, seen


def refuse(
    device: GpuDevice, *, kv: GpuKV, heads: int, kv_heads: int, **others: object
) -> str | None:
    for side in (kv.k, kv.v):
        if side.dim % 16:
            return f"heads of {side.dim} are no multiple of 16"
    return None


def bind(
    device: GpuDevice,
    *,
    kv: GpuKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    causal: bool = True,
    window: int = 0,
    sinks: Array | None = None,
) -> Callable[..., Array]:
    group, v_dim = heads // kv_heads, kv.v.dim
    keys, most = keys_at_once(kv), most_tiles(kv, device.card.capability)
    span = split_of(kv.room)
    splits = -(-kv.room // span) + (kv.ring > 0)  # the ends of a ring may share one
    memory = (*kv.k.read, *kv.v.read, kv.room)
    stored = {"K": kv.k.kind, "K_DIM": kv.k.dim, "V": kv.v.kind, "V_DIM": v_dim}
    shape = {**stored, "GROUP": group, "WINDOWED": window > 0, "RING": kv.ring}
    prompt_tile = tile_of_prompts(kv, device.card.capability)
    parts_at_once = 8 if v_dim <= 256 else 4  # of 512 numbers registers hold no more
    launch, see_all = device.launch, {"SEE_ALL": not causal}
    base2 = scale * LOG2_E
    merging = {
        **{"DIM": v_dim, "BLOCK": triton.next_power_of_2(v_dim), "HEAD_DIM": head_dim},
        **{"HEADS": heads, "GROUP": group, "WINDOWED": window > 0, "HAS_SINKS": sinks is not None},
        **{"ROTATION": kv.format_v.rotation.kind, "TURNED": kv.format_v.rotation.block},
        "RING": kv.ring,
    }

    def attend(q: Array, positions: Array, parents: Array | None = None) -> Array:
        n = len(q)
        if parents is not None:
            _check_tree(n, causal)
        out = device.empty((n, heads * head_dim), np.float32)
        few = n <= FEW_ROWS
        parts = splits if few else 1
        partials = device.scratch((kv_heads, parts, n * group, v_dim), np.float32)
        peaks = device.scratch((kv_heads, parts, n * group, 2), np.float32)
        asked = (q, q.stride(0), positions)
        rule = (n, base2, window, *memory, partials, peaks)
        if few:
            tiles = min(most, triton.next_power_of_2(-(-n * group // ROWS)))
            blocks = -(-n * group // (16 * tiles))
            workers = max(1, min(splits, 2 * device.card.sms // (kv_heads * blocks)))
            launch(
                split, (kv_heads, workers, blocks), *asked, *rule, splits, **shape, **see_all,
                KEYS=keys, TILES=tiles, SPLIT=span, TREE=parents is not None, warps=4, stages=2,
            )  # fmt: skip
        else:
            rows, tiles, at_once, warps = prompt_tile
            blocks = -(-n * group // (rows * tiles))
            launch(
                prompt, (blocks, kv_heads), *asked, *rule, **shape, **see_all,
                KEYS=at_once, ROWS=rows, TILES=tiles, warps=warps, stages=2,
            )  # fmt: skip
        if parents is not None:
            launch(
                branch, (kv_heads, n), *asked, parents, *rule, splits, **shape,
                KEYS=keys, TILES=-(-group // 16), SPLIT=span, warps=4, stages=2,
            )  # fmt: skip
        merged = 1 if few and not device.interprets else 16
        launch(
            merge, (-(-n * heads // merged),), partials, peaks, positions, n, window, parts,
            q if sinks is None else sinks, out, **merging, **see_all, ROWS=merged,
            SPLIT=span if few else 0, PARTS=parts_at_once if few else 1, warps=4, stages=1,
        )  # fmt: skip
        return out

    return attend


def keys_at_once(kv: GpuKV) -> int:
    """Keys of a tile: so many that two stages of them fit into the smallest shared memory."""
    return TILE if kv.k.dim + kv.v.dim <= 512 else TILE // 2


def tile_of_prompts(kv: GpuKV, capability: int) -> tuple[int, int, int, int]:
    """Rows of a tile of a prompt, tiles that are taken past keys together, keys, and warps.

    Large tiles where registers hold them, else those of few rows.
    """
    dim, kinds = max(kv.k.dim, kv.v.dim), {kv.k.kind, kv.v.kind}
    if dim <= 128 and not kinds & (TURBO | {"f32", "bf16"}):
        return 128, 1, TILE // 2 if capability < 86 else TILE, 8
    if dim <= 256 and kinds == {"f16"}:
        return 64, 1, TILE // 2, 8
    return ROWS, most_tiles(kv, capability), keys_at_once(kv), 4


def split_of(room: int) -> int:
    """Keys of a split: 256, more of a cache so long that merging 256 of them would show."""
    return max(256, triton.next_power_of_2(-(-room // 256)))


def most_tiles(kv: GpuKV, capability: int) -> int:
    """Tiles of 16 rows that may share what is loaded: as many as registers hold, by what compilers
    made of them for each capability (tests/kernels/test_ahead.py holds it to that)."""
    kinds, dim = {kv.k.kind, kv.v.kind}, max(kv.k.dim, kv.v.dim)
    if dim > 256 or kinds & {"f32", "bf16"}:  # these are multiplied as float32
        return 1
    if dim > 128:
        return 1 if kinds & {"f16"} else 2
    if dim <= 64 or capability < 90:
        return 4
    return 1 if kinds & TURBO and capability >= 120 else 2


def _check_tree(rows: int, causal: bool) -> None:
    if not causal:
        raise NoKernel("the rows of a block see each other, those of a tree must not")
    if rows > FEW_ROWS:
        raise NoKernel(
            f"a tree of {rows} rows is over the {FEW_ROWS} that the GPU verifies at once",
            hint="draft a smaller tree",
        )
