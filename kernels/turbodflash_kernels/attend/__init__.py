"""attend: attention over a cache.

bind(kv: KV, heads: int, kv_heads: int, head_dim: int, scale: float, causal: bool = True,
     window: int = 0, sinks: f32[heads] | None = None)
call(q: f32[n, heads * padded], positions: int32[n], parents: int32[n] | None = None)
    -> f32[n, heads * head_dim]
result = softmax(scale * q . k) v; query head h uses key head h // (heads / kv_heads).

q is as `rope_store` gives it: heads as keys are stored, of `padded` numbers, and turned if the
format of keys says so. Values are summed up as they are stored; their sum is turned back once.

The row at position p sees the keys of slots
    causal       0..p
    not causal   0..max(positions): the rows of the call see all of each other
    window > 0   of those, only slots p0 with p - p0 < window: nothing that follows p is hidden.
Of a ring (see `KV`) slot s is slot s % ring. All that a call sees must be there: the furthest slot
that was stored less the first that a row sees is below the ring. Then the result has the bits that
it has in a cache of all positions; slots that no row sees may hold anything that was stored.
sinks: one logit more per head in the softmax, with a value of zero.

parents: the rows are a tree. Row 0 is its root, with parent -1; the parent of row r is a row before
it and positions[r] = positions[parent] + 1. K and V of row r lie in slot positions[0] + r. A row
sees the slots before positions[0], its ancestors and itself, each at its position: the result has
the very bits that a pass of these tokens alone, as a chain, would give. Causal only.
"""
