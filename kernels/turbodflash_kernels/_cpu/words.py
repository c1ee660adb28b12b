"""What the team's Python side and its kernels agree on: where words lie, and how tasks are shared.

Shared words are int64, each group on a cache line of its own; offsets are in bytes.
"""

from __future__ import annotations

import struct

EPOCH = 0  # grows with every tape
TAPE, RECORDS, ACTIVE, SCRATCH, SCRATCH_EACH = 64, 72, 80, 88, 96
YIELD = 104  # the system's function that gives the core away
NEXT_TASK, ARRIVED, GENERATION = 128, 192, 256
THREADS = 320  # then 64 bytes a thread: parked, the epoch it has seen

# A record: kernel, number of tasks, arguments, and where the next stream begins for each thread
RECORD_WORDS = 28
ARGUMENT_WORDS = 24
AHEAD, AHEAD_STRIDE = 8 * 26, 8 * 27
EACH_THREAD = -1  # as a number of tasks: every thread does it, into its own scratch; nobody waits


def own_tasks(tasks: int, active: int) -> int:
    """Tasks in a row that a thread does before it takes what is left: its stream of memory is
    long, and the last tasks still even out a thread that is late."""
    return tasks * 3 // (4 * active)


def float_word(value: float) -> int:
    """A float32 in the low half of a word."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
