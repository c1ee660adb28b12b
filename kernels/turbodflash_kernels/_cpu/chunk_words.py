"""How much of a thread's memory attention takes."""

from turbodflash_kernels._cpu.kv_words import CHUNK

MOST_QUERIES = 64  # that a chunk is decoded for at once
SCORE_BYTES = 4 * CHUNK  # of one query
WHOLE_BYTES = 2 * CHUNK  # of one query, in whole numbers
DIRECT_TYPES = ("f16", "q8_0")  # what direct_kernels know, for
MOST_DIRECT = 4  # queries
SLAB = 32  # keys, or values, that are decoded together


def bounds_bytes(queries: int) -> int:
    """What queries see of a chunk: two words each, on whole cache lines."""
    return (16 * queries + 63) // 64 * 64


def space_bytes(queries: int, width_k: int, width_v: int) -> int:
    """A slab of keys and one of values as float32, a chunk's scores, the scales of values, and
    weights as whole numbers with their factors."""
    slabs, each = 4 * SLAB * (width_k + width_v), SCORE_BYTES + WHOLE_BYTES
    return slabs + each * queries + SCORE_BYTES + (4 * queries + 63) // 64 * 64
