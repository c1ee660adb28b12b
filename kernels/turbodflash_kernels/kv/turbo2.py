"""turbo2: 128 rotated numbers in 34 bytes, four levels."""

from turbodflash_kernels.kv._turbo import pack_pairs, turbo_type, unpack_pairs

TYPE = turbo_type(
    "turbo2",
    levels=(0.039994, 0.133462),
    middles=(0.086728,),
    pack=pack_pairs,
    unpack=unpack_pairs,
)
