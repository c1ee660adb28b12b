"""How kernels read heads of keys and values: plane by plane, ready to be multiplied.

The steps from a word to two float16 numbers are constants, so that they are done to words before
these are laid out for tensor cores, not to numbers after it.
"""

from __future__ import annotations

# ruff: noqa: RUF005 - Triton knows no starred tuples
import triton
import triton.language as tl

from turbodflash_kernels._gpu.constants import (
    has_norm,
    is_plain,
    layout,
    per_head,
    plane_of,
    planes_of,
    scales,
    shape,
)
from turbodflash_kernels._gpu.levels import entry, table

PACKED = tl.constexpr(not triton.knobs.runtime.interpret)  # instructions that are not interpreted
SIGNS = tl.constexpr(-0x7FFF8000)  # 0x80008000
MAGIC = tl.constexpr(0x64006400)  # twice 1024 in float16, whose last bits are whole numbers


@triton.jit
def of_head(codes, beside, factors, head, room, KIND: tl.constexpr, DIM: tl.constexpr,
            IN_WORDS: tl.constexpr = True):  # fmt: skip
    """Where one K/V head begins in each of its tensors (see _gpu/kv.py).

    IN_WORDS: two factors are one element, as kernels read them.
    """
    slots = head.to(tl.int64) * room
    codes += slots * per_head(KIND, DIM)
    if not is_plain(KIND):
        # a room is of whole tiles: its factors are whole words
        factors += slots * scales(KIND, DIM) // 2 if IN_WORDS else slots * scales(KIND, DIM)
        if layout(KIND, "beside") != 0:
            beside += slots * per_head(KIND, DIM)
    return codes, beside, factors


@triton.jit
def load_planes(codes, beside, factors, slots, KIND: tl.constexpr, DIM: tl.constexpr):
    """The heads in `slots` int32[n]: a tuple of planes [n, numbers].

    float32 of types f32 and bf16, else float16; of types with norms, to be multiplied by
    `load_norms`.
    """
    if is_plain(KIND):
        planes = _plain_planes(codes, slots, KIND, DIM)
    else:
        planes = _coded_planes(codes, beside, factors, slots, KIND, DIM)
    return planes


@triton.jit
def load_norms(factors, slots, KIND: tl.constexpr, DIM: tl.constexpr):
    """The norm of each 128 numbers: a tuple of float32 [n]; empty if the type has none."""
    norms = ()
    if has_norm(KIND):
        GROUPS: tl.constexpr = scales(KIND, DIM)
        for group in tl.static_range(GROUPS):
            at = slots * GROUPS + group
            both = tl.load(factors + at // 2)
            one = (both >> (16 * (at % 2))).to(tl.int16).to(tl.float16, bitcast=True)
            norms = norms + (one.to(tl.float32),)
    return norms


@triton.jit
def _plain_planes(codes, slots, KIND: tl.constexpr, DIM: tl.constexpr):
    WIDTH: tl.constexpr = plane_of(KIND, DIM)
    at = slots[:, None] * DIM + tl.arange(0, WIDTH)[None, :]
    planes = ()
    for p in tl.static_range(planes_of(KIND, DIM)):
        numbers = tl.load(codes + p * WIDTH + at)
        if KIND == "bf16":  # kept as its bits
            numbers = (numbers.to(tl.int32) << 16).to(tl.float32, bitcast=True)
        planes = planes + (numbers,)
    return planes


@triton.jit
def _coded_planes(codes, beside, factors, slots, KIND: tl.constexpr, DIM: tl.constexpr):
    WORDS: tl.constexpr = shape(KIND, DIM, "words")
    PLANES: tl.constexpr = shape(KIND, DIM, "planes")
    SUB: tl.constexpr = shape(KIND, DIM, "sub")
    at = slots[:, None] * per_head(KIND, DIM) + tl.arange(0, WORDS)[None, :]
    planes = ()
    for chunk in tl.static_range(planes_of(KIND, DIM) // PLANES):
        words = tl.load(codes + chunk * WORDS + at)
        more = words
        if layout(KIND, "beside") == 8:
            more = _spread(tl.load(beside + chunk * WORDS + at).to(tl.int32), 4)
        elif layout(KIND, "beside") == 16:
            more = _spread(tl.load(beside + chunk * WORDS + at).to(tl.int32), 8) << 8
        for p in tl.static_range(PLANES):
            numbers = _plane(words, more, p, SUB, KIND)
            if not has_norm(KIND):
                numbers = _scaled(numbers, factors, slots, chunk * PLANES + p, KIND, DIM)
            planes = planes + (numbers,)
    return planes


@triton.jit
def _spread(bits, COUNT: tl.constexpr):
    """The upper of 2 COUNT bits moved to the upper half of a word."""
    low = bits & ((1 << COUNT) - 1)
    return low | ((bits >> COUNT) & ((1 << COUNT) - 1)) << 16


@triton.jit
def _plane(words, more, P: tl.constexpr, SUB: tl.constexpr, KIND: tl.constexpr):
    """words [n, w] -> float16 [n, 32], not yet scaled."""
    numbers = _numbers(words, more, P, P * SUB, KIND)
    if SUB == 2:
        numbers = tl.join(numbers, _numbers(words, more, P, P * SUB + 1, KIND))
    elif SUB == 4:
        odd = tl.join(_numbers(words, more, P, 1, KIND), _numbers(words, more, P, 3, KIND))
        numbers = tl.join(tl.join(numbers, _numbers(words, more, P, 2, KIND)), odd)
    return tl.reshape(numbers, [words.shape[0], 32])


@triton.jit
def _numbers(words, more, P: tl.constexpr, FIELD: tl.constexpr, KIND: tl.constexpr):
    """What a field of both halves of words [n, w] means: float16 [n, w, 2]."""
    if KIND == "turbo4":
        pair = _level(words, P, KIND) | ((words << (12 - 4 * P)) & SIGNS)
        numbers = _halves(pair)
    elif KIND == "turbo3":
        pair = _level(words >> (2 * (FIELD % 2)), P, KIND) | ((more << FIELD) & SIGNS)
        numbers = _halves(pair)
    elif KIND == "turbo2":
        numbers = _halves(_level(words >> (2 * (FIELD % 2)), P, KIND))
    elif KIND == "iq4_nl":
        signs = ((words << (12 - 4 * FIELD)) & SIGNS) ^ SIGNS
        numbers = _halves(_level_of_iq4(words, FIELD) | signs) - _halves(signs | MAGIC)
    elif KIND == "q8_0":
        numbers = _halves(((words >> (8 * FIELD)) & 0x00FF00FF) | MAGIC) - 1152.0
    else:
        pair = ((words >> (4 * FIELD)) & 0x000F000F) | MAGIC
        if layout(KIND, "beside") != 0:
            pair = pair | (((more >> FIELD) & 0x00010001) << 4)
        numbers = _halves(pair) - (1024.0 + layout(KIND, "offset"))
    return numbers


@triton.jit
def _halves(pair):
    """Words of two float16 [n, w] -> float16 [n, w, 2]."""
    low = pair.to(tl.int16).to(tl.float16, bitcast=True)
    return tl.join(low, (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True))


@triton.jit
def _scaled(numbers, factors, slots, BLOCK: tl.constexpr, KIND: tl.constexpr, DIM: tl.constexpr):
    """numbers [n, 32] of a block, times its scale, plus its minimum."""
    WORDS: tl.constexpr = scales(KIND, DIM) // 2
    if layout(KIND, "factors") == 2:
        both = tl.load(factors + slots * WORDS + BLOCK)
        low = both.to(tl.int16).to(tl.float16, bitcast=True)
        high = (both >> 16).to(tl.int16).to(tl.float16, bitcast=True)
        numbers = tl.fma(numbers, low[:, None], high[:, None])
    else:
        both = tl.load(factors + slots * WORDS + BLOCK // 2)
        one = (both >> (16 * (BLOCK % 2))).to(tl.int16).to(tl.float16, bitcast=True)
        numbers = numbers * one[:, None]
    return numbers


# -- levels: looked up, four bytes an instruction --------------------------------------------------


@triton.jit
def _level(words, P: tl.constexpr, KIND: tl.constexpr):
    """Levels of the nibbles 2 P and 2 P + 1: words of two float16."""
    MASK: tl.constexpr = 7 if KIND == "turbo4" else 3
    if PACKED:
        nibbles = (words >> (16 * (P // 2))) & (MASK * 0x11111111)
        low = _lookup(nibbles, table(KIND, 0, 0), table(KIND, 0, 1))
        high = _lookup(nibbles, table(KIND, 8, 0), table(KIND, 8, 1))
        pair = _permuted(low, high, 0x7362 if P % 2 else 0x5140)
    else:
        lower = _chosen((words >> (8 * P)) & MASK, MASK, KIND)
        pair = lower | _chosen((words >> (8 * P + 4)) & MASK, MASK, KIND) << 16
    return pair


@triton.jit
def _level_of_iq4(words, FIELD: tl.constexpr):
    """1024 more than the levels, without signs, of the nibbles FIELD and FIELD + 4.

    A byte that is looked up by a nibble of 8 and more becomes its own sign, 0 here.
    """
    if PACKED:
        others = words ^ -0x77777778
        first = _iq4_bytes(words, others)
        second = _iq4_bytes(words >> 16, others >> 16)
        pair = _permuted(first, second, FIELD * 0x11 + (FIELD + 4) * 0x1100) & 0x00FF00FF
    else:
        lower = _chosen((words >> (4 * FIELD)) & 15, 15, "iq4_nl")
        pair = lower | _chosen((words >> (4 * FIELD + 16)) & 15, 15, "iq4_nl") << 16
    return pair | MAGIC


@triton.jit
def _iq4_bytes(negative, positive):
    low = _lookup(negative, table("iq4_nl", 0, 0), table("iq4_nl", 0, 1))
    return low | _lookup(positive, table("iq4_nl", 0, 2), table("iq4_nl", 0, 3))


@triton.jit
def _chosen(index, MOST: tl.constexpr, KIND: tl.constexpr):
    """The entry of a table, without instructions of its own."""
    found = tl.zeros_like(index)
    for i in tl.static_range(MOST + 1):
        found = tl.where(index == i, entry(KIND, i), found)
    return found


@triton.jit
def _lookup(nibbles, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """Of the eight bytes of two words, those that the lower four nibbles name."""
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [FIRST, SECOND, nibbles], tl.int32, True, 1
    )


@triton.jit
def _permuted(first, second, ORDER: tl.constexpr):
    """Of the eight bytes of two words, those that ORDER names."""
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [first, second, ORDER], tl.int32, True, 1
    )
