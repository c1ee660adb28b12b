"""How `delta_net` is recorded on the CPU device: convolve, step, gate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turbodflash_kernels._cpu.delta_words import GATES_BYTES, NODE_BYTES, PLAN_WORDS
from turbodflash_kernels._cpu.device import MANY_ROWS, CpuDevice, Stream
from turbodflash_kernels._cpu.state import COLUMNS, CpuState
from turbodflash_kernels._cpu.team import SCRATCH_BYTES, address
from turbodflash_kernels._cpu.words import float_word
from turbodflash_kernels.op import Array, RmsNorm

ROWS_PER_TASK = 16  # of a prompt, of what rows do by themselves


def refuse(device: CpuDevice, *, state: CpuState, **others: object) -> str | None:
    block = 4 * COLUMNS * state.shape.head_dim
    most = (SCRATCH_BYTES - block) // (block + NODE_BYTES)
    if state.room > most:
        return f"{state.room} pending rows of heads of {state.shape.head_dim} are over {most}"
    return None


def bind(
    device: CpuDevice,
    *,
    state: CpuState,
    taps: Array,
    dt_bias: Array,
    decay: Array,
    norm: RmsNorm,
    eps: float,
) -> Callable[..., Array]:
    shape, room = state.shape, state.room
    convolve, step, gate = (
        device.kernel("delta_net", name) for name in ("convolve", "step", "gate")
    )
    heads = 2 * shape.key_heads + shape.value_heads
    plan = device.empty((PLAN_WORDS,), np.int64)
    counted = (address(state.counts), address(state.last_round), address(plan))
    sizes = (shape.key_heads, shape.value_heads, shape.head_dim)
    memory = (address(state.window), address(state.waiting), len(taps))
    made = (address(taps), address(dt_bias), address(decay), float_word(eps))
    s = Stream(address(state.s), 4 * COLUMNS * shape.head_dim)

    def delta_net(x: Array, parents: Array | None = None) -> Array:
        n = len(x)
        table = device.scratch((heads, room + n, shape.head_dim), np.float32)
        gates = device.scratch((shape.value_heads, room + n, GATES_BYTES // 4), np.float32)
        found = device.scratch((shape.value_heads, n, shape.head_dim), np.float32)
        out = device.scratch((n, shape.inner), np.float32)
        device.keep(x, parents, state, taps, dt_bias, decay, norm.weight, plan)
        per_task = ROWS_PER_TASK if n > MANY_ROWS else n
        shares = -(-n // per_task)
        words = (
            *(*counted, *sizes, address(x), x.strides[0], n, per_task),
            *(0 if parents is None else address(parents), *memory),
            *(address(table), address(gates), room + n, room, address(found)),
        )
        device.record(convolve, shares * heads, *words, *made, rows=n)
        device.record(step, shape.inner // COLUMNS, *words, s.address, rows=n, stream=s)
        normed = (address(norm.weight), float_word(norm.eps), address(out))
        device.record(gate, shares * shape.value_heads + heads, *words, *normed, rows=n)
        return out

    return delta_net
