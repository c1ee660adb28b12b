"""How attention is shared out, and how much of a thread's memory it takes."""

from turbodflash_kernels._cpu.kv_words import CHUNK

SPLITS_PER_THREAD = 4  # of the keys that few rows see
MOST_QUERIES = 120  # that a chunk is decoded for at once
SCORE_BYTES = 4 * CHUNK  # of one query
WHOLE_BYTES = 2 * CHUNK  # of one query, in whole numbers
DIRECT_TYPES = ("f16", "q8_0")  # what direct_kernels know, for
MOST_DIRECT = 4  # queries
QUERIES = 6  # that share the loads of keys and values
SLAB = 32  # keys that are decoded together
ZERO_BYTES = 4 * 128  # that sums begin with
PANEL = 4096  # numbers of values that are decoded together


def bounds_bytes(queries: int) -> int:
    """What queries see of a chunk: two words each, on whole cache lines."""
    return (16 * queries + 63) // 64 * 64


def ends_bytes(queries: int) -> int:
    """A word for each group of queries, on whole cache lines."""
    return (queries + 8 * QUERIES - 1) // (8 * QUERIES) * 64


def decoded_bytes(width_k: int) -> int:
    """A slab of keys, or a panel of values, as float32."""
    return 4 * max(SLAB * width_k, PANEL)


def space_bytes(queries: int, width_k: int) -> int:
    """Zeros, ends of what groups see, what is decoded, a chunk's scores, the scales of values, and
    weights as whole numbers with their factors."""
    before = ZERO_BYTES + ends_bytes(queries) + decoded_bytes(width_k)
    scores = (SCORE_BYTES + WHOLE_BYTES) * queries
    return before + scores + SCORE_BYTES + (4 * queries + 63) // 64 * 64


def halved(queries: int, kv_heads: int, threads: int) -> int:
    """Of so few chunks, at most, two tasks take half of the queries each: threads would run out of
    tasks that even them out."""
    return (2 * threads - 1) // kv_heads if queries > 2 * QUERIES else 0


def units_of(chunks: int, most: int, halved: int, kv_heads: int) -> tuple[int, int, int]:
    """In how many parts few rows look at chunks, `most` at most, in how many their queries come,
    and how many units of work that is for all K/V heads."""
    splits, halves = min(chunks, most), 2 if chunks <= halved else 1
    return splits, halves, kv_heads * splits * halves


def unit_of(task: int, tasks: int, units: int) -> int:
    """What a task is about, -1 if nothing: units lie evenly between the tasks that have nothing to
    do, so that those of a thread, which stand in a row, have their share."""
    return task * units // tasks if task * units % tasks < units else -1


def place_of(part: int, splits: int, chunks: int) -> tuple[int, int, int]:
    """The K/V head of one of its parts, the first chunk, and the end of them."""
    head, place = part // splits, part % splits
    return head, place * chunks // splits, (place + 1) * chunks // splits


def queries_of(unit: int, halves: int, queries: int) -> tuple[int, int]:
    """The first that it computes, and the end of them."""
    if halves == 1:
        return 0, queries
    half = (queries // 2 + QUERIES - 1) // QUERIES * QUERIES
    return (0, half) if unit % 2 == 0 else (half, queries)
