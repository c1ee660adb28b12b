"""The thread team's own kernels: play a tape, wait for the next one. Words: see words.py."""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu import words
from turbodflash_kernels._cpu.atomics import (
    call_kernel,
    call_system,
    fetch_add,
    load_acquire,
    pause,
    store_release,
)
from turbodflash_kernels._cpu.simd import load_i64, prefetch, store_i64
from turbodflash_kernels._cpu.words import (
    ACTIVE,
    AHEAD,
    AHEAD_STRIDE,
    ARRIVED,
    EACH_THREAD,
    EPOCH,
    GENERATION,
    NEXT_TASK,
    RECORDS,
    SCRATCH,
    SCRATCH_EACH,
    TAPE,
    THREADS,
    YIELD,
)

RECORD_BYTES = 8 * words.RECORD_WORDS
AHEAD_BYTES = 32 << 10  # of the next stream, per thread: a few microseconds of memory
SPINS_BETWEEN_YIELDS = 256

inline = numba.njit(error_model="numpy")
own_tasks = inline(words.own_tasks)


@inline
def _wait_for_all(shared, active, record, thread):
    """The last to arrive opens the next record; results of this one are visible to all then.

    Who waits asks memory for what the next stream of weights begins with: its own share first.
    """
    generation = load_acquire(shared + GENERATION)
    if fetch_add(shared + ARRIVED, 1) == active - 1:
        store_i64(shared + ARRIVED, 0)
        store_i64(shared + NEXT_TASK, 0)
        store_release(shared + GENERATION, generation + 1)
        return
    ahead, stride = load_i64(record + AHEAD), load_i64(record + AHEAD_STRIDE)
    line = 0
    while ahead != 0 and line < AHEAD_BYTES and load_acquire(shared + GENERATION) == generation:
        prefetch(ahead + thread * stride + line)
        line += 64
    spins = 0
    while load_acquire(shared + GENERATION) == generation:
        pause(0)
        spins += 1
        if spins % SPINS_BETWEEN_YIELDS == 0:
            call_system(load_i64(shared + YIELD))


@inline
def _play(shared, thread):
    tape, active = load_i64(shared + TAPE), load_i64(shared + ACTIVE)
    scratch = load_i64(shared + SCRATCH) + thread * load_i64(shared + SCRATCH_EACH)
    record, tasks = tape, 0
    for i in range(load_i64(shared + RECORDS)):
        record = tape + i * RECORD_BYTES
        kernel, tasks = load_i64(record), load_i64(record + 8)
        if tasks == EACH_THREAD:
            call_kernel(kernel, record + 16, 0, scratch)
            continue
        if active == 1:
            for task in range(tasks):
                call_kernel(kernel, record + 16, task, scratch)
            continue
        own = own_tasks(tasks, active)
        for task in range(thread * own, thread * own + own):
            call_kernel(kernel, record + 16, task, scratch)
        task = active * own + fetch_add(shared + NEXT_TASK, 1)
        while task < tasks:
            call_kernel(kernel, record + 16, task, scratch)
            task = active * own + fetch_add(shared + NEXT_TASK, 1)
        _wait_for_all(shared, active, record, thread)
    if tasks == EACH_THREAD and active > 1:  # nobody may still need this tape when it is replaced
        _wait_for_all(shared, active, record, thread)


def play(shared, thread):
    """Take part in the tape that the shared words describe."""
    _play(shared, thread)


def stand_by(shared, thread, patience):
    """Play tapes as they come; return when none came for `patience` spins, with `parked` set."""
    mine = shared + THREADS + 64 * thread
    seen = load_i64(mine + 8)
    spins = 0
    while True:
        epoch = load_acquire(shared + EPOCH)
        if epoch != seen:
            seen = epoch
            store_i64(mine + 8, seen)
            if load_i64(shared + RECORDS) < 0:
                return
            if thread < load_i64(shared + ACTIVE):
                _play(shared, thread)
            spins = 0
            continue
        pause(0)
        spins += 1
        if spins % SPINS_BETWEEN_YIELDS == 0:
            call_system(load_i64(shared + YIELD))
        if spins > patience:
            store_release(mine, 1)
            if load_acquire(shared + EPOCH) == seen:
                return
            store_release(mine, 0)
            spins = 0


def build(name):
    return {"play": play, "stand_by": stand_by}[name]
