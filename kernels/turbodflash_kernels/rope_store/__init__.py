"""rope_store: norm and rotate queries and keys, put keys and values into the cache.

bind(kv: KV, heads: int, kv_heads: int, head_dim: int, rope: Rope,
     q_norm: RmsNorm | None = None, k_norm: RmsNorm | None = None, v_norm: RmsNorm | None = None,
     finite: bool = False)
call(qkv: f32[n, width], positions: int32[n], slots: int32[n] | None = None)
    -> q f32[n, heads * padded]
width = (heads + 2 * kv_heads) * head_dim: a row of qkv holds the query heads, then the key heads,
then the value heads; it may be a slice of a wider row. heads = 0 stores keys and values alone,
kv_heads = 0 stores nothing.
The norms are per head (weight f32[head_dim]) and come before the rotation, which values do without.
Keys and values go to the slots, which are the positions if not given, in the cache's formats:
filled up with zeros to `padded` numbers, turned by the format's rotation, encoded (see the package
`kv`). So is q, as keys are, but not encoded: `attend` compares it with them. Of a ring (see `KV`)
slot s is slot s % ring, and a call stores each slot once.

finite: NaN, and a number beyond `most` of the format, is stored as 0. For rows that come from
another model: one bad row must not spoil whatever looks back at it.
"""
