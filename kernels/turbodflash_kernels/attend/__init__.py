"""attend: causal attention over a cache.

bind(kv: KV, heads: int, kv_heads: int, head_dim: int, scale: float)
call(q: f32[n, heads * head_dim], positions: int32[n]) -> f32[n, heads * head_dim]
Row r sees the keys of slots 0..positions[r]; query head h uses key head h // (heads / kv_heads).
result = softmax(scale * q . k) v
"""
