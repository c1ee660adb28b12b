"""What the team's Python side and its kernels agree on: where words lie, and how tasks are shared.

Shared words are int64, each group on a cache line of its own; offsets are in bytes.
"""

from __future__ import annotations

import struct

EPOCH = 0  # grows with every tape
TAPE, RECORDS, ACTIVE, SCRATCH, SCRATCH_EACH = 64, 72, 80, 88, 96
YIELD = 104  # the system's function that gives the core away
ARRIVED, GENERATION = 128, 192
THREADS = 256  # then for each thread:
PARKED, SEEN = 0, 8  # SEEN: the epoch
NEXT = 64  # the first of its own tasks that nobody has taken, and which generation they are of
HELPED = 128  # how many of them others have done
THREAD_BYTES = 192
TASK_BITS = 24  # of NEXT; those above are the generation's

# A record: kernel, number of tasks, arguments, and where the next stream begins for each thread
RECORD_WORDS = 28
ARGUMENT_WORDS = 24
AHEAD, AHEAD_STRIDE = 8 * 26, 8 * 27
EACH_THREAD = -1  # as a number of tasks: every thread does it, into its own scratch; nobody waits


def first_task(tasks: int, thread: int, active: int) -> int:
    """Where a thread's own tasks begin; they end where those of the next begin. They stand in a
    row: its stream of memory is long, and nobody else asks for the same lines."""
    return tasks * thread // active


def float_word(value: float) -> int:
    """A float32 in the low half of a word."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
