"""rope_store: rotate queries and keys, put keys and values into the cache.

bind(kv: KV, heads: int, kv_heads: int, head_dim: int, rope: Rope)
call(qkv: f32[n, width], positions: int32[n]) -> q f32[n, heads * head_dim]
width = (heads + 2 * kv_heads) * head_dim: a row of qkv holds the query heads, then the key heads,
then the value heads. The rotated keys and the values go to slot = position, in the cache's format.
"""
