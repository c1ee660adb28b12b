"""What kernels know of a cache: offsets of int64 words at the address that they are given."""

CHUNK = 128  # positions that lie together, the unit of attention
PARTIAL_EXTRA = 16  # floats after a chunk's vector: its maximum and its sum, padded

# chunk c of head h: keys at MEMORY + c * CHUNK_BYTES + h * K_HEAD, in tiles of sixteen positions;
# values at V_AT behind the chunk's beginning + h * V_HEAD, in rows
MEMORY, CHUNK_BYTES, V_AT, K_HEAD, V_HEAD, K_TILE, V_ROW = range(0, 56, 8)
# numbers of a key as stored, and of a head as it is decoded and summed up
WIDTH_K, SUM_K, SUM_V = range(56, 80, 8)
# kernels that decode a head, and how many pieces these, and those that encode one, are told
DECODE_K, DECODE_V, PIECES_K, PIECES_V = range(80, 112, 8)
# kernels that encode a head, and the float32 bits of the largest number that stays finite
ENCODE_K, ENCODE_V, MOST_K, MOST_V = range(112, 144, 8)
# blocks of a key's row, each FIELDS_K float16 and UNITS_K units of UNIT_K bytes
BLOCKS_K, FIELDS_K, UNITS_K, UNIT_K = range(144, 176, 8)
# rotation of heads: 0 none, n > 0 a Hadamard block, -n a turbo block; SIGNS: float32 [2, 128];
# TURN: the kernel that rotates, if anything does
TURN_K, TURN_V, SIGNS, TURN = range(176, 208, 8)
CHUNKS = 208  # that there are: chunk c lies where c % CHUNKS does
# kernels of rounding_kernels and integer_kernels, or 0
QUERIES_K, SCORES_K, WEIGHTS_V, SUMS_V = range(216, 248, 8)
# numbers of a value that are decoded together (fewer may be left at its end), and their bytes
PANEL_V, PANEL_BYTES = 248, 256
WORDS = 33
