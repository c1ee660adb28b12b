"""How `rope_store` is recorded on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice
from turbodflash_kernels._cpu.kv import CpuKV
from turbodflash_kernels._cpu.team import address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array, RmsNorm, Rope

ROWS_PER_TASK = 16  # of a prompt
FEW_ROWS_PER_TASK = 2


def refuse(device: CpuDevice, *, head_dim: int, rope: Rope, **others: object) -> str | None:
    if rope.n_rot % 2 or rope.n_rot > head_dim:
        return f"{rope.n_rot} rotated elements do not fit heads of {head_dim}"
    return None


def bind(
    device: CpuDevice,
    *,
    kv: CpuKV,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope: Rope,
    q_norm: RmsNorm | None = None,
    k_norm: RmsNorm | None = None,
    v_norm: RmsNorm | None = None,
    finite: bool = False,
) -> Callable[..., Array]:
    angles = device.kernel("rope_store", "angles", rope.kind)
    rotate = device.kernel("rope_store", "rotate", rope.kind)
    inv_freq = device.upload(np.asarray(rope.inv_freq, np.float32))
    magnitude = float_word(rope.magnitude)
    half = rope.n_rot // 2
    same_angles = (rope.kind, inv_freq.tobytes(), magnitude)
    norms = (q_norm, k_norm, v_norm)
    norm_words = [word for norm in norms for word in _norm_words(norm)]

    def angles_of(positions: Array) -> Array:
        n = len(positions)
        out = device.scratch((n, 2, rope.n_rot), np.float32)
        words = (address(positions), n, address(inv_freq), half, magnitude, address(out))
        device.keep(positions, inv_freq)
        device.record(angles, n, *words, rows=n)
        return out

    def rope_store(qkv: Array, positions: Array, slots: Array | None = None) -> Array:
        n = len(qkv)
        where = positions if slots is None else slots
        key = ("angles", address(positions), n, same_angles)
        table = device.once(key, lambda: angles_of(positions))
        q = device.scratch((n, heads * kv.format_k.padded), np.float32)
        device.keep(qkv, positions, where, kv, *(norm.weight for norm in norms if norm))
        per_task = ROWS_PER_TASK if n > MANY_ROWS else FEW_ROWS_PER_TASK
        key_tasks = kv_heads if FEW_ROWS_PER_TASK < n <= MANY_ROWS else 0
        device.record(
            rotate,
            key_tasks + -(-n // per_task),
            *(address(qkv), qkv.strides[0], address(positions), n),
            *(heads, kv_heads, head_dim, rope.n_rot, address(table)),
            *(address(q), q.strides[0], address(kv.words)),
            *(per_task, address(where), *norm_words, finite, key_tasks),
            rows=n,
        )
        return q

    return rope_store


def _norm_words(norm: RmsNorm | None) -> tuple[int, int]:
    """The address of the weight and the bits of eps; 0 if there is no norm."""
    return (0, 0) if norm is None else (address(norm.weight), float_word(norm.eps))
