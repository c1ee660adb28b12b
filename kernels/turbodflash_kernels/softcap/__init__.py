"""softcap: numbers held between -cap and cap, smoothly.

bind(cap: float), above 0
call(x: f32[n, k]) -> f32[n, k] = cap * tanh(x / cap)
x may be a column slice of a wider array.
"""
