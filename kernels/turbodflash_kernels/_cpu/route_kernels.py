"""Kernels that choose experts for rows, and group rows by experts (see `moe`)."""

from __future__ import annotations

import numba
import numpy as np

from turbodflash_kernels._cpu.exponentials import vexp
from turbodflash_kernels._cpu.simd import (
    load_f32,
    load_i32,
    load_i64,
    store_f32,
    store_i32,
    vbelow,
    vfind,
    vload,
    vload_partial,
    vmax,
    vmax_of,
    vsplat,
    vstore,
    vsum,
)

LEAST, ABSENT = np.float32(-np.inf), np.float32(np.nan)
LEAST_TOTAL = np.float32(6.103515625e-5)  # weights are never divided by less
GROUP_BYTES = 12  # of a group: expert, first position, positions

inline = numba.njit(error_model="numpy")


@inline
def numbers(x, i):
    """Sixteen logits, -inf for those that are NaN: taken, or not there."""
    return vmax(vload(x + 4 * i), vsplat(LEAST))


@inline
def largest_of(x, count):
    most = vsplat(LEAST)
    for i in range(0, count, 16):
        most = vmax(numbers(x, i), most)
    return vmax_of(most)


@inline
def take_first(x, count, value):
    """Where `value` first stands; it is not there from then on."""
    for i in range(0, count, 16):
        lane = vfind(vload(x + 4 * i), value)
        if lane < 16:
            store_f32(x + 4 * (i + lane), ABSENT)
            return i + lane
    return 0


@inline
def exponential(x):
    return vsum(vbelow(1, vexp(vsplat(x)), vsplat(np.float32(0.0))))


def route():
    """words: router, router_stride, experts, used, chosen, weights, scale. A task is a row.

    chosen: i32, weights: f32, both [n, used]. scale: f32[experts] or 0, multiplies weights.
    """

    def kernel(args, task, scratch):
        logits = load_i64(args) + task * load_i64(args + 8)
        experts, used = load_i64(args + 16), load_i64(args + 24)
        chosen = load_i64(args + 32) + 4 * task * used
        weights = load_i64(args + 40) + 4 * task * used
        scale = load_i64(args + 48)
        for i in range(0, experts, 16):
            some = vmax(vload_partial(logits + 4 * i, experts - i), vsplat(LEAST))
            vstore(scratch + 4 * i, vbelow(experts - i, some, vsplat(ABSENT)))
        largest = largest_of(scratch, experts)
        total = vsplat(np.float32(0.0))
        for i in range(0, experts, 16):
            total = total + vexp(numbers(scratch, i) - vsplat(largest))
        whole, mine, value = vsum(total), np.float32(0.0), largest
        for slot in range(used):
            expert = take_first(scratch, experts, value)
            share = exponential(value - largest) / whole
            mine += share
            store_i32(chosen + 4 * slot, expert)
            store_f32(weights + 4 * slot, share)
            value = largest_of(scratch, experts)
        mine = max(mine, LEAST_TOTAL)
        for slot in range(used):
            weight = load_f32(weights + 4 * slot) / mine
            if scale != 0:
                weight = weight * load_f32(scale + 4 * load_i32(chosen + 4 * slot))
            store_f32(weights + 4 * slot, weight)

    return kernel


def group():
    """words: chosen, pairs, experts, groups, order, places. One task.

    groups: i32, how many experts were chosen, then GROUP_BYTES for each of them, ascending.
    order: i32[pairs], position -> pair. places: i32[pairs], pair -> position.
    """

    def kernel(args, task, scratch):
        chosen, pairs, experts = load_i64(args), load_i64(args + 8), load_i64(args + 16)
        groups, order, places = load_i64(args + 24), load_i64(args + 32), load_i64(args + 40)
        for expert in range(experts):
            store_i32(scratch + 4 * expert, 0)
        for pair in range(pairs):
            counter = scratch + 4 * load_i32(chosen + 4 * pair)
            store_i32(counter, load_i32(counter) + 1)
        active, first = 0, 0
        for expert in range(experts):
            count = load_i32(scratch + 4 * expert)
            if count > 0:
                at = groups + 4 + GROUP_BYTES * active
                store_i32(at, expert)
                store_i32(at + 4, first)
                store_i32(at + 8, count)
                active += 1
            store_i32(scratch + 4 * expert, first)
            first += count
        store_i32(groups, active)
        for pair in range(pairs):
            following = scratch + 4 * load_i32(chosen + 4 * pair)
            place = load_i32(following)
            store_i32(following, place + 1)
            store_i32(places + 4 * pair, place)
            store_i32(order + 4 * place, pair)

    return kernel
