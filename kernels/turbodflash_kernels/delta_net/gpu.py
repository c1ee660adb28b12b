"""Kernels of `delta_net` for Triton: what rows say, for all of them at once; then row by row.

`convolve` makes queries, keys, values and gates of all rows, of pending ones that come before x
too. `follow` takes them in one after the other, with a few columns of a head's S in registers:
columns know nothing of each other. Who comes last of a head norms and gates its rows.

Rows are numbered from the first of x on: -1, -2, ... are pending rows, then those of the window.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.state import GpuState
from turbodflash_kernels.device import CARRIED, ROUND, SETTLED, TAKEN
from turbodflash_kernels.op import Array, RmsNorm

COLUMNS = 8  # of S that a program follows in one warp; the order of its sums depends on it
INTERPRETED_COLUMNS = 16
MOST_WAITING = 8  # programs that share out pending rows; each takes one row after the other
CHUNKS = 16  # parts of a prompt whose heads are gated together, so that the last is a short one
COPIED = 256  # numbers of a pending row, or of the window, that a program copies at a time

_SETTLED, _CARRIED = tl.constexpr(SETTLED), tl.constexpr(CARRIED)
_TAKEN, _ROUND = tl.constexpr(TAKEN), tl.constexpr(ROUND)


@triton.jit
def _address(row, before, x, x_stride, waiting, window, TAPS: tl.constexpr, CHANNELS: tl.constexpr,
             PENDING: tl.constexpr):  # fmt: skip
    """Where the channels of a row lie; `before`: pending rows between the window and x."""
    at = before + row
    if row >= 0:
        place = x + tl.cast(row, tl.int64) * x_stride
    elif at >= 0:
        place = waiting + tl.cast(at, tl.int64) * PENDING
    else:
        place = window + (TAPS - 1 + at) * CHANNELS
    return place


@triton.jit
def _followed(row, parents, TREE: tl.constexpr):
    """The row that a row follows."""
    above = row - 1
    if TREE:
        above = tl.where(row >= 0, tl.load(parents + tl.maximum(row, 0)), above)
    return above


@triton.jit
def _convolved(
    row, before, channel, inside, x, x_stride, parents, waiting, window, taps,
    TAPS: tl.constexpr, CHANNELS: tl.constexpr, PENDING: tl.constexpr, TREE: tl.constexpr,
):  # fmt: skip
    """silu of the sum over a row and those that it follows."""
    total = tl.zeros_like(channel).to(tl.float32)
    for tap in tl.static_range(TAPS):
        place = _address(row, before, x, x_stride, waiting, window, TAPS, CHANNELS, PENDING)
        b_x = tl.load(place + channel, mask=inside, other=0.0)
        b_tap = tl.load(taps + (TAPS - 1 - tap) * CHANNELS + channel, mask=inside, other=0.0)
        total = tl.fma(b_tap, b_x, total)
        if tap + 1 < TAPS:
            row = _followed(row, parents, TREE)
    return total * tl.sigmoid(total)


@triton.jit
def _said(
    row, before, head, x, x_stride, parents, waiting, window, taps, dt_bias, decay, eps, root,
    c, gates, products,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    TAPS: tl.constexpr, TREE: tl.constexpr,
):  # fmt: skip
    """What a row says to one head of keys, or of values."""
    CHANNELS: tl.constexpr = (2 * KEY_HEADS + HEADS) * DIM
    PENDING: tl.constexpr = CHANNELS + 2 * HEADS
    i = tl.arange(0, BLOCK)
    inside = i < DIM
    at = tl.cast(before + row, tl.int64)
    out = c + at * CHANNELS
    if head < KEY_HEADS:
        channel = head * DIM + i
        b_q = _convolved(row, before, channel, inside, x, x_stride, parents, waiting, window, taps,
                         TAPS, CHANNELS, PENDING, TREE)  # fmt: skip
        b_k = _convolved(row, before, KEY_HEADS * DIM + channel, inside, x, x_stride, parents,
                         waiting, window, taps, TAPS, CHANNELS, PENDING, TREE)  # fmt: skip
        b_q = b_q / tl.sqrt_rn(tl.sum(b_q * b_q, 0) + eps) * root
        b_k = b_k / tl.sqrt_rn(tl.sum(b_k * b_k, 0) + eps)
        tl.store(out + channel, b_q, mask=inside)
        tl.store(out + KEY_HEADS * DIM + channel, b_k, mask=inside)
        tl.store(products + at * KEY_HEADS + head, tl.sum(b_q * b_k, 0))
    else:
        head -= KEY_HEADS
        place = _address(row, before, x, x_stride, waiting, window, TAPS, CHANNELS, PENDING)
        p_gates = place + CHANNELS + head
        if row >= 0:
            p_gates += HEADS * DIM  # x has z in between
        beta = tl.sigmoid(tl.load(p_gates))
        alpha = tl.load(p_gates + HEADS) + tl.load(dt_bias + head)
        softplus = tl.maximum(alpha, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(alpha)))
        kept = tl.exp(tl.load(decay + head) * softplus)
        channel = (2 * KEY_HEADS + head) * DIM + i
        b_v = _convolved(row, before, channel, inside, x, x_stride, parents, waiting, window, taps,
                         TAPS, CHANNELS, PENDING, TREE)  # fmt: skip
        tl.store(out + channel, b_v * beta, mask=inside)
        tl.store(gates + 2 * (at * HEADS + head), kept)
        tl.store(gates + 2 * (at * HEADS + head) + 1, kept * beta)


@triton.jit
def _moved(
    end, before, head, x, x_stride, waiting, window, moved,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    TAPS: tl.constexpr,
):  # fmt: skip
    """The rows before row `end`, of the channels of one head of keys and queries, or of values."""
    CHANNELS: tl.constexpr = (2 * KEY_HEADS + HEADS) * DIM
    i = tl.arange(0, BLOCK)
    inside = i < DIM
    of_values = head >= KEY_HEADS
    channel = tl.where(of_values, head + KEY_HEADS, head) * DIM + i
    for tap in tl.static_range(TAPS - 1):
        place = _address(end - (TAPS - 1) + tap, before, x, x_stride, waiting, window,
                         TAPS, CHANNELS, CHANNELS + 2 * HEADS)  # fmt: skip
        out = moved + tap * CHANNELS
        tl.store(out + channel, tl.load(place + channel, mask=inside), mask=inside)
        if not of_values:
            also = KEY_HEADS * DIM + channel
            tl.store(out + also, tl.load(place + also, mask=inside), mask=inside)


@triton.jit(do_not_specialize=["n"])
def convolve(
    counts, seen, plan, x, x_stride, n, parents, waiting, window, taps, dt_bias, decay, eps, root,
    moved, c, gates, products,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    TAPS: tl.constexpr, TREE: tl.constexpr, WAITING: tl.constexpr,
):  # fmt: skip
    """c: [pending rows, then those of x; channels], queries and keys of length one, values times
    beta. gates: [rows, HEADS, 2], what S keeps of itself, and that times beta. products:
    [rows, KEY_HEADS], of query and key. plan: pending rows that come first, whether they settle.
    moved: the window before the first row that the memory does not take in.
    """
    program, head = tl.program_id(0), tl.program_id(1)
    settled = tl.load(counts + _SETTLED)
    settles = (tl.load(seen) != tl.load(counts + _ROUND)) & (settled > 0)
    before = tl.where(settles, settled, tl.load(counts + _CARRIED))
    if (program == 0) & (head == 0):
        tl.store(plan, before)
        tl.store(plan + 1, settles.to(tl.int32))
    if program == 0:
        _moved(tl.load(counts + _TAKEN), before, head, x, x_stride, waiting, window, moved,
               KEY_HEADS, HEADS, DIM, BLOCK, TAPS)  # fmt: skip
    if program < n:
        _said(program, before, head, x, x_stride, parents, waiting, window, taps, dt_bias, decay,
              eps, root, c, gates, products, KEY_HEADS, HEADS, DIM, BLOCK, TAPS, TREE)  # fmt: skip
    else:
        for at in range(program - n, before, WAITING):
            _said(at - before, before, head, x, x_stride, parents, waiting, window, taps, dt_bias,
                  decay, eps, root, c, gates, products, KEY_HEADS, HEADS, DIM, BLOCK, TAPS,
                  TREE)  # fmt: skip


@triton.jit
def _step(
    b_s, at, head, c, gates, products, column, inside,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """S after a row, of some columns, and what it then says to the row's query."""
    at, i, key_head = tl.cast(at, tl.int64), tl.arange(0, BLOCK), head % KEY_HEADS
    here, row = column * 0, c + at * ((2 * KEY_HEADS + HEADS) * DIM)
    b_q = tl.load(row + key_head * DIM + i, mask=i < DIM, other=0.0)
    b_k = tl.load(row + (KEY_HEADS + key_head) * DIM + i, mask=i < DIM, other=0.0)
    b_v = tl.load(row + (2 * KEY_HEADS + head) * DIM + column, mask=inside, other=0.0)
    b_kept = tl.load(gates + 2 * (at * HEADS + head) + here)
    b_known = tl.load(gates + 2 * (at * HEADS + head) + 1 + here)
    b_product = tl.load(products + at * KEY_HEADS + key_head + here)
    told = b_v - b_known * tl.sum(b_s * b_k[:, None], 0)
    heard = b_kept * tl.sum(b_s * b_q[:, None], 0) + b_product * told
    b_k = tl.broadcast_to(b_k[:, None], b_s.shape)
    return tl.fma(b_k, tl.broadcast_to(told[None, :], b_s.shape), b_s * b_kept[None, :]), heard


@triton.jit
def _of_path(
    b_s, b_root, row, before, head, parents, c, gates, products, column, inside,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """S after all that a row of a tree follows: b_s, if that is the row before it, else made from
    b_root, which is S before the tree."""
    if tl.load(parents + row) != row - 1:
        b_s = b_root
        depth, above = 0, tl.load(parents + row)
        while above >= 0:
            above = tl.load(parents + above)
            depth += 1
        for more in range(0, depth):
            above = tl.load(parents + row)
            for _ in range(more + 1, depth):
                above = tl.load(parents + above)
            b_s, _heard = _step(b_s, before + above, head, c, gates, products, column, inside,
                                KEY_HEADS, HEADS, DIM, BLOCK)  # fmt: skip
    return b_s


@triton.jit
def _gate(
    first, last, head, heard, x, x_stride, norm, norm_eps, out,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out: what the head says to rows first..last-1, normed and gated."""
    i = tl.arange(0, BLOCK)
    b_norm = tl.load(norm + i, mask=i < DIM, other=0.0)
    for row in range(first, last):
        at = (tl.cast(row, tl.int64) * HEADS + head) * DIM + i
        b_o = tl.load(heard + at, mask=i < DIM, other=0.0, cache_modifier=".cg")
        p_z = x + tl.cast(row, tl.int64) * x_stride + CHANNELS + head * DIM + i
        b_z = tl.load(p_z, mask=i < DIM, other=0.0)
        b_o = b_o / tl.sqrt_rn(tl.sum(b_o * b_o, 0) / DIM + norm_eps) * b_norm
        tl.store(out + at, b_o * (b_z * tl.sigmoid(b_z)), mask=i < DIM)


@triton.jit
def _copy(
    program, programs, n, remembers, taken, carried, x, x_stride, moved, window, waiting,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, INNER: tl.constexpr, TAPS: tl.constexpr,
    COPIED: tl.constexpr,
):  # fmt: skip
    """The window becomes what `convolve` has found it to be; rows that are not taken wait."""
    PENDING: tl.constexpr = CHANNELS + 2 * HEADS
    i = tl.arange(0, COPIED)
    if remembers:
        for start in range(program * COPIED, (TAPS - 1) * CHANNELS, programs * COPIED):
            inside = start + i < (TAPS - 1) * CHANNELS
            tl.store(window + start + i, tl.load(moved + start + i, mask=inside), mask=inside)
    PIECES: tl.constexpr = (PENDING + COPIED - 1) // COPIED
    for piece in range(program, (n - taken) * PIECES, programs):
        row, number = tl.cast(piece // PIECES, tl.int64), piece % PIECES * COPIED + i
        channel = tl.where(number < CHANNELS, number, number + INNER)  # z lies in between
        b_x = tl.load(x + (taken + row) * x_stride + channel, mask=number < PENDING)
        tl.store(waiting + (carried + row) * PENDING + number, b_x, mask=number < PENDING)


@triton.jit(do_not_specialize=["n", "chunk"])
def follow(
    counts, seen, plan, x, x_stride, n, parents, waiting, window, s, moved, c, gates, products,
    norm, norm_eps, heard, out, counters, chunk,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    TAPS: tl.constexpr, TREE: tl.constexpr, COLUMNS: tl.constexpr, CHUNKS: tl.constexpr,
    COPIED: tl.constexpr,
):  # fmt: skip
    """Some columns of a head's S, past all rows. heard, out: [n, HEADS * DIM]. Rows are gated
    `chunk` of them at a time, by the program that is the last to have gone past them.
    """
    CHANNELS: tl.constexpr = (2 * KEY_HEADS + HEADS) * DIM
    part, parts, head = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    before, settles = tl.load(plan), tl.load(plan + 1) != 0
    taken = tl.load(counts + _TAKEN)
    i, column = tl.arange(0, BLOCK), part * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < DIM
    p_s = s + (head * DIM + i)[:, None] * DIM + column[None, :]
    in_s = (i < DIM)[:, None] & inside[None, :]
    b_s = tl.load(p_s, mask=in_s, other=0.0)
    for at in tl.range(0, before, num_stages=3):
        b_s, _heard = _step(b_s, at, head, c, gates, products, column, inside,
                            KEY_HEADS, HEADS, DIM, BLOCK)  # fmt: skip
    if settles & (taken == 0):
        tl.store(p_s, b_s, mask=in_s)
    b_root = b_s
    for first in range(0, n, chunk):
        last = tl.minimum(first + chunk, n)
        for row in tl.range(first, last, num_stages=3):
            if TREE:
                b_s = _of_path(b_s, b_root, row, before, head, parents, c, gates, products, column,
                               inside, KEY_HEADS, HEADS, DIM, BLOCK)  # fmt: skip
            b_s, b_heard = _step(b_s, before + row, head, c, gates, products, column, inside,
                                 KEY_HEADS, HEADS, DIM, BLOCK)  # fmt: skip
            to = heard + (tl.cast(row, tl.int64) * HEADS + head) * DIM
            tl.store(to + column, b_heard, mask=inside)
            if row + 1 == taken:
                tl.store(p_s, b_s, mask=in_s)
        tl.debug_barrier()  # all of the program has stored before one of it says so
        counter = counters + head * CHUNKS + first // chunk
        if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == parts - 1:
            _gate(first, last, head, heard, x, x_stride, norm, norm_eps, out,
                  CHANNELS, HEADS, DIM, BLOCK)  # fmt: skip
            tl.store(counter, 0)
    _copy(head * parts + part, parts * HEADS, n, settles | (taken > 0), taken,
          tl.load(counts + _CARRIED), x, x_stride, moved, window, waiting,
          CHANNELS, HEADS, HEADS * DIM, TAPS, COPIED)  # fmt: skip
    if (part == 0) & (head == 0):
        tl.store(seen, tl.load(counts + _ROUND))


def refuse(device: GpuDevice, *, state: GpuState, **others: object) -> str | None:
    return None


def bind(
    device: GpuDevice,
    *,
    state: GpuState,
    taps: Array,
    dt_bias: Array,
    decay: Array,
    norm: RmsNorm,
    eps: float,
) -> Callable[..., Array]:
    shape = state.shape
    heads, dim = shape.value_heads, shape.head_dim
    waits = 1 if device.interprets else min(state.room, MOST_WAITING)  # what idles costs time, too
    columns = INTERPRETED_COLUMNS if device.interprets else COLUMNS
    parts = triton.cdiv(dim, columns)
    counters = device.counters.take(heads * CHUNKS)
    sizes = {
        **{"KEY_HEADS": shape.key_heads, "HEADS": heads, "DIM": dim, "TAPS": shape.taps},
        "BLOCK": triton.next_power_of_2(dim),
    }
    memory = (state.waiting, state.window)

    def delta_net(x: Array, parents: Array | None = None) -> Array:
        n = x.shape[0]
        rows = state.room + n
        plan = device.scratch((2,), np.int32)
        moved = device.scratch((shape.taps - 1, shape.channels), np.float32)
        c = device.scratch((rows, shape.channels), np.float32)
        gates = device.scratch((rows, heads, 2), np.float32)
        products = device.scratch((rows, shape.key_heads), np.float32)
        heard = device.scratch((n, shape.inner), np.float32)
        out = device.scratch((n, shape.inner), np.float32)
        given = (state.counts, state.last_round, plan, x, x.stride(0), n, parents, *memory)
        tree = parents is not None
        device.launch(
            convolve, (n + waits, shape.key_heads + heads), *given, taps, dt_bias, decay, eps,
            float(dim**-0.5), moved, c, gates, products, **sizes, TREE=tree, WAITING=waits,
            warps=1, stages=1,
        )  # fmt: skip
        device.launch(
            follow, (parts, heads), *given, state.s, moved, c, gates, products, norm.weight,
            norm.eps, heard, out, counters, max(16, triton.cdiv(n, CHUNKS)), **sizes, TREE=tree,
            COLUMNS=columns, CHUNKS=CHUNKS, COPIED=COPIED, warps=1, stages=1,
        )  # fmt: skip
        return out

    return delta_net
