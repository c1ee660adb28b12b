"""turbo2: 128 rotated numbers in 34 bytes, four levels."""

from turbodflash_kernels.kv._turbo import pack_pairs, symmetric, turbo_type, unpack_pairs

LEVELS = symmetric(0.039994, 0.133462)
MIDDLES = symmetric(0, 0.086728)

TYPE = turbo_type("turbo2", levels=LEVELS, middles=MIDDLES, pack=pack_pairs, unpack=unpack_pairs)
