"""What the kernels of a delta net are told: offsets of int64 words, and of what these point to."""

COUNTS, SEEN, PLAN, KEY_HEADS, VALUE_HEADS, HEAD_DIM = range(0, 48, 8)
X, X_STRIDE, N, ROWS_PER_TASK, PARENTS = range(48, 88, 8)
WINDOW, WAITING, TAP_COUNT = range(88, 112, 8)
# rows as the recurrence takes them in, head by head: TABLE f32 [heads of q, k and v, places,
# head_dim], GATES f32 [value heads, places, 2]; and what comes of them, HEADS [value heads, n,
# head_dim]. A row before x has its number as its place, a row of x comes `room` places later
TABLE, GATES, PLACES, ROOM, HEADS = range(112, 152, 8)
# those of each kernel
TAPS, DT_BIAS, DECAY, EPS = range(152, 184, 8)  # convolve
S = 152  # step
NORM, NORM_EPS, OUT = range(152, 176, 8)  # gate

SETTLED, CARRIED, TAKEN, ROUND = range(0, 16, 4)  # of counts
BASE, FIXED = 0, 8  # of the plan: rows before x, and rows of all that the memory takes in
PLAN_WORDS = 2
KEPT, TOLD, GATES_BYTES = 0, 4, 8  # of a row's gates: of S, of an error
NODE_BYTES = 80  # of a tree, beside its S: what made it, where it was made from, whether it was
