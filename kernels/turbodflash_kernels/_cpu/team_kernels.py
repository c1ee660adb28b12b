"""The thread team's own kernels: play a tape, wait for the next one. Words: see words.py."""

from __future__ import annotations

import numba

from turbodflash_kernels._cpu import words
from turbodflash_kernels._cpu.atomics import (
    call_kernel,
    call_system,
    compare_exchange,
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
    HELPED,
    NEXT,
    PARKED,
    RECORDS,
    SCRATCH,
    SCRATCH_EACH,
    SEEN,
    TAPE,
    TASK_BITS,
    THREAD_BYTES,
    THREADS,
    YIELD,
)

RECORD_BYTES = 8 * words.RECORD_WORDS
AHEAD_BYTES = 32 << 10  # of the next stream, per thread: a few microseconds of memory
SPINS_BETWEEN_YIELDS = 256

inline = numba.njit(error_model="numpy")
first_task = inline(words.first_task)


@inline
def _take(place, first, end, generation):
    """Of tasks first..end-1, from the next on that nobody has taken: half of them. Returns the
    first and the end of what is taken, which are the same if nothing is left.

    A word of an earlier generation says that nobody has taken any, one of a later that this one
    was over before who helps had looked.
    """
    while True:
        found = load_acquire(place)
        task = first if found < generation else min(found - generation, end)
        after = task + (end - task + 1) // 2
        if task >= end or compare_exchange(place, found, generation + after) != 0:
            return task, after


@inline
def _do_own(shared, record, thread, active, generation, scratch):
    """All of a thread's own tasks, but for those that others help with; returns when all are done.

    Words of a generation come to be with the first who takes a task, the thread or who helps it.
    """
    mine = shared + THREADS + THREAD_BYTES * thread
    kernel, tasks = load_i64(record), load_i64(record + 8)
    first, end = first_task(tasks, thread, active), first_task(tasks, thread + 1, active)
    others = end - first
    task, after = _take(mine + NEXT, first, end, generation)
    while task < after:
        others -= after - task
        while task < after:
            call_kernel(kernel, record + 16, task, scratch)
            task += 1
        task, after = _take(mine + NEXT, first, end, generation)
    if others > 0:
        _await(shared, mine + HELPED, others)
        store_i64(mine + HELPED, 0)


@inline
def _help(shared, record, thread, active, generation, scratch):
    """Do what others have not begun."""
    kernel, tasks = load_i64(record), load_i64(record + 8)
    for turn in range(1, active):
        owner = (thread + turn) % active
        theirs = shared + THREADS + THREAD_BYTES * owner
        first, end = first_task(tasks, owner, active), first_task(tasks, owner + 1, active)
        task, after = _take(theirs + NEXT, first, end, generation)
        while task < after:
            for each in range(task, after):
                call_kernel(kernel, record + 16, each, scratch)
            fetch_add(theirs + HELPED, after - task)
            task, after = _take(theirs + NEXT, first, end, generation)


@inline
def _await(shared, place, value):
    spins = 0
    while load_acquire(place) != value:
        pause(0)
        spins += 1
        if spins % SPINS_BETWEEN_YIELDS == 0:
            call_system(load_i64(shared + YIELD))


@inline
def _last_to_arrive(shared, active, generation):
    """Whether this thread is; it opens the next record. Results of this one are visible to all
    then."""
    if fetch_add(shared + ARRIVED, 1) < active - 1:
        return False
    store_i64(shared + ARRIVED, 0)
    store_release(shared + GENERATION, generation + 1)
    return True


@inline
def _wait(shared, record, thread, generation):
    """Until the next record is open. Who waits asks memory for what the next stream of weights
    begins with: its own share first."""
    ahead, stride = load_i64(record + AHEAD), load_i64(record + AHEAD_STRIDE)
    line = 0
    while ahead != 0 and line < AHEAD_BYTES and load_acquire(shared + GENERATION) == generation:
        prefetch(ahead + thread * stride + line)
        line += 64
    _await(shared, shared + GENERATION, generation + 1)


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
        generation = load_acquire(shared + GENERATION)
        numbered = generation << TASK_BITS
        _do_own(shared, record, thread, active, numbered, scratch)
        if not _last_to_arrive(shared, active, generation):
            _help(shared, record, thread, active, numbered, scratch)
            _wait(shared, record, thread, generation)
    if tasks == EACH_THREAD and active > 1:  # nobody may still need this tape when it is replaced
        generation = load_acquire(shared + GENERATION)
        if not _last_to_arrive(shared, active, generation):
            _wait(shared, record, thread, generation)


def play(shared, thread):
    """Take part in the tape that the shared words describe."""
    _play(shared, thread)


def stand_by(shared, thread, patience):
    """Play tapes as they come; return when none came for `patience` spins, with `parked` set."""
    mine = shared + THREADS + THREAD_BYTES * thread
    seen = load_i64(mine + SEEN)
    spins = 0
    while True:
        epoch = load_acquire(shared + EPOCH)
        if epoch != seen:
            seen = epoch
            store_i64(mine + SEEN, seen)
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
            store_release(mine + PARKED, 1)
            if load_acquire(shared + EPOCH) == seen:
                return
            store_release(mine + PARKED, 0)
            spins = 0


def build(name):
    return {"play": play, "stand_by": stand_by}[name]
