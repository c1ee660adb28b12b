"""`rope_store` on the GPU: a program for each head of each row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl

from turbodflash_kernels._gpu import pairs
from turbodflash_kernels._gpu.device import FEW_ROWS, GpuDevice
from turbodflash_kernels._gpu.encode import store_heads
from turbodflash_kernels._gpu.hadamard import turned
from turbodflash_kernels._gpu.kv import GpuKV, Side
from turbodflash_kernels._gpu.planes import of_head
from turbodflash_kernels.kv import HeadFormat
from turbodflash_kernels.op import Array, RmsNorm, Rope

FEW_ROWS_AT_ONCE, ROWS_AT_ONCE = 1, 8
NUMBERS_AT_ONCE = 4096  # of the heads of a program: more than 32 a thread do not stay in registers


@triton.jit(do_not_specialize=["n"])
def turn_and_store(
    x, stride, positions, slots, n, inv_freq, magnitude, q_norm, q_eps, k_norm, k_eps,
    v_norm, v_eps, q,
    k, k_beside, k_factors, k_pairs, most_k, v, v_beside, v_factors, v_pairs, most_v, room,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, N_ROT: tl.constexpr,
    ADJACENT: tl.constexpr, FINITE: tl.constexpr,
    Q_NORM: tl.constexpr, K_NORM: tl.constexpr, V_NORM: tl.constexpr,
    K: tl.constexpr, K_DIM: tl.constexpr, K_ROTATION: tl.constexpr, K_TURNED: tl.constexpr,
    V: tl.constexpr, V_DIM: tl.constexpr, V_ROTATION: tl.constexpr, V_TURNED: tl.constexpr,
    K_HALF: tl.constexpr, V_HALF: tl.constexpr,
    K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr, ROWS: tl.constexpr, RING: tl.constexpr,
):  # fmt: skip
    """One head of ROWS rows: queries go to q, keys and values to their slots."""
    row, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    inside = row < n
    of = x + row.to(tl.int64) * stride + head * DIM
    if head < HEADS:
        query = _rotated(
            of, positions + row, inside, inv_freq, magnitude, q_norm, q_eps,
            DIM, N_ROT, ADJACENT, Q_NORM, ROWS, K_BLOCK, K_ROTATION, K_TURNED, False, most_k,
        )  # fmt: skip
        column = tl.arange(0, K_BLOCK)
        to = q + (row.to(tl.int64) * (HEADS * K_DIM) + head * K_DIM)[:, None] + column[None, :]
        tl.store(to, query, mask=inside[:, None] & (column < K_DIM)[None, :])
    elif head < HEADS + KV_HEADS:
        key = _rotated(
            of, positions + row, inside, inv_freq, magnitude, k_norm, k_eps,
            DIM, N_ROT, ADJACENT, K_NORM, ROWS, K_BLOCK, K_ROTATION, K_TURNED, FINITE, most_k,
        )  # fmt: skip
        k, k_beside, k_factors = of_head(
            k, k_beside, k_factors, head - HEADS, room, K, K_DIM, False
        )
        slot = tl.load(slots + row, mask=inside, other=0)
        slot = slot % RING if RING else slot
        store_heads(
            k, k_beside, k_factors, k_pairs, slot, inside, key, ROWS, K_BLOCK, K, K_DIM, K_HALF
        )
    else:
        column = tl.arange(0, V_BLOCK)[None, :]
        value = tl.load(of[:, None] + column, mask=inside[:, None] & (column < DIM), other=0.0)
        if V_NORM:
            factor = 1.0 / tl.sqrt_rn(tl.sum(value * value, 1) / DIM + v_eps)
            value = value * factor[:, None] * tl.load(v_norm + column, mask=column < DIM, other=0.0)
        value = _turned(value, ROWS, V_BLOCK, V_ROTATION, V_TURNED, FINITE, most_v)
        v, v_beside, v_factors = of_head(
            v, v_beside, v_factors, head - HEADS - KV_HEADS, room, V, V_DIM, False
        )
        slot = tl.load(slots + row, mask=inside, other=0)
        slot = slot % RING if RING else slot
        store_heads(
            v, v_beside, v_factors, v_pairs, slot, inside, value, ROWS, V_BLOCK, V, V_DIM, V_HALF
        )


@triton.jit
def _rotated(
    x, positions, inside, inv_freq, magnitude, norm, eps, DIM: tl.constexpr, N_ROT: tl.constexpr,
    ADJACENT: tl.constexpr, NORMED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    ROTATION: tl.constexpr, TURNED: tl.constexpr, FINITE: tl.constexpr, most,
):  # fmt: skip
    """The heads at x [ROWS], normed and rotated by their positions, as they are stored."""
    i = tl.arange(0, BLOCK)
    HALF: tl.constexpr = N_ROT // 2
    if ADJACENT:
        pair, partner, second = i // 2, i ^ 1, i % 2 == 1
    else:
        pair, partner, second = i % HALF, tl.where(i < HALF, i + HALF, i - HALF), i >= HALF
    rotates = i < N_ROT
    there, rotated = inside[:, None] & (i < DIM)[None, :], inside[:, None] & rotates[None, :]
    own = tl.load(x[:, None] + i[None, :], mask=there, other=0.0)
    other = tl.load(x[:, None] + partner[None, :], mask=rotated, other=0.0)
    if NORMED:
        factor = (1.0 / tl.sqrt_rn(tl.sum(own * own, 1) / DIM + eps))[:, None]
        own = own * factor * tl.load(norm + i, mask=i < DIM, other=0.0)[None, :]
        other = other * factor * tl.load(norm + partner, mask=rotates, other=0.0)[None, :]
    position = tl.load(positions, mask=inside, other=0).to(tl.float32)
    angle = position[:, None] * tl.load(inv_freq + pair, mask=rotates, other=0.0)[None, :]
    cos, sin = _cos_sin(angle)
    both = own * (cos * magnitude) + tl.where(second[None, :], other, -other) * (sin * magnitude)
    own = tl.where(rotates[None, :], both, own)
    return _turned(own, ROWS, BLOCK, ROTATION, TURNED, FINITE, most)


@triton.jit
def _cos_sin(angle):
    """Of float32 angles of 0 to 2^20, to a unit or two of the last place.

    The library's functions carry a slow path for any angle, which is most of a kernel's code. A
    quarter of a turn in two parts reduces these exactly enough: the first difference is exact.
    """
    quarter = tl.floor(angle * 0.6366197723675814 + 0.5)
    r = tl.fma(quarter, -1.5707963705062866, angle)
    r = tl.fma(quarter, 4.371139000186241e-08, r)
    z = r * r
    sin = tl.fma(z, 1.0 / 362880, -1.0 / 5040)
    sin = tl.fma(tl.fma(sin, z, 1.0 / 120), z, -1.0 / 6)
    sin = tl.fma(sin * z, r, r)
    cos = tl.fma(z, -1.0 / 3628800, 1.0 / 40320)
    cos = tl.fma(tl.fma(cos, z, -1.0 / 720), z, 1.0 / 24)
    cos = tl.fma(tl.fma(cos, z, -0.5), z, 1.0)
    turn = quarter.to(tl.int32) & 3
    odd = turn & 1 == 1
    found_cos, found_sin = tl.where(odd, sin, cos), tl.where(odd, cos, sin)
    found_cos = tl.where((turn == 1) | (turn == 2), -found_cos, found_cos)
    return found_cos, tl.where(turn >= 2, -found_sin, found_sin)


@triton.jit
def _turned(
    x, ROWS: tl.constexpr, BLOCK: tl.constexpr, ROTATION: tl.constexpr, TURNED: tl.constexpr,
    FINITE: tl.constexpr, most,
):  # fmt: skip
    """x [ROWS, BLOCK], 0 for what is NaN or larger than most if it must be finite, turned."""
    if FINITE:
        x = tl.where(tl.abs(x) <= most, x, 0.0)
    if ROTATION != "none":
        flat = turned(tl.reshape(x, [ROWS * BLOCK]), ROWS * BLOCK, ROTATION, TURNED)
        x = tl.reshape(flat, [ROWS, BLOCK])
    return x


def refuse(device: GpuDevice, *, head_dim: int, rope: Rope, **others: object) -> str | None:
    if rope.n_rot % 2 or rope.n_rot > head_dim:
        return f"{rope.n_rot} rotated elements do not fit heads of {head_dim}"
    return None


def bind(
    device: GpuDevice,
    *,
    kv: GpuKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope: Rope,
    q_norm: RmsNorm | None = None,
    k_norm: RmsNorm | None = None,
    v_norm: RmsNorm | None = None,
    finite: bool = False,
) -> Callable[..., Array]:
    inv_freq = device.upload(np.asarray(rope.inv_freq, np.float32))
    norms = (*_norm(q_norm, inv_freq), *_norm(k_norm, inv_freq), *_norm(v_norm, inv_freq))
    pairs_k, pairs_v = (_pairs(device, side.format) for side in (kv.k, kv.v))
    memory = (
        *(*kv.k.written, pairs_k, kv.format_k.most),
        *(*kv.v.written, pairs_v, kv.format_v.most, kv.room),
    )
    shape = {
        **{"HEADS": heads, "KV_HEADS": kv_heads, "DIM": head_dim, "N_ROT": rope.n_rot},
        **{"ADJACENT": rope.kind == "norm", "FINITE": finite},
        **{"Q_NORM": q_norm is not None, "K_NORM": k_norm is not None},
        **{"V_NORM": v_norm is not None, "RING": kv.ring},
        **_stored("K", kv.k),
        **_stored("V", kv.v),
    }

    widest = max(shape["K_BLOCK"], shape["V_BLOCK"])
    many = min(ROWS_AT_ONCE, max(NUMBERS_AT_ONCE // widest, 1))

    def rope_store(qkv: Array, positions: Array, slots: Array | None = None) -> Array:
        n = len(qkv)
        q = device.empty((n, heads * kv.k.dim), np.float32)
        rows = FEW_ROWS_AT_ONCE if n <= FEW_ROWS and not device.interprets else many
        device.launch(
            turn_and_store, (-(-n // rows), heads + 2 * kv_heads), qkv, qkv.stride(0), positions,
            positions if slots is None else slots, n, inv_freq, rope.magnitude, *norms, q,
            *memory, **shape, ROWS=rows, warps=1 if rows * widest <= 128 else 4, stages=1,
        )  # fmt: skip
        return q

    return rope_store


def _norm(norm: RmsNorm | None, nothing: Array) -> tuple[Array, float]:
    return (nothing, 0.0) if norm is None else (norm.weight, norm.eps)


def _pairs(device: GpuDevice, format: HeadFormat) -> Array:
    """The table of paired codes; nothing much if the format has none."""
    return device.upload(pairs.table(format.type.name) if format.half_filled else np.zeros(1, "f4"))


def _stored(side: str, memory: Side) -> dict[str, object]:
    rotation = memory.format.rotation
    return {
        side: memory.kind,
        f"{side}_DIM": memory.dim,
        f"{side}_BLOCK": triton.next_power_of_2(memory.dim),
        f"{side}_ROTATION": rotation.kind,
        f"{side}_TURNED": rotation.block,
        f"{side}_HALF": memory.format.half_filled,
    }
