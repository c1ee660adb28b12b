"""gate: an array, each number or each row multiplied by an activated gate.

bind(activation: "sigmoid" | "silu" | "gelu")
call(gate: f32[n, k] or f32[n, 1], x: f32[n, k], residual: f32[n, k] | None = None) -> f32[n, k]
    = activation(gate) * x + residual
All inputs may be column slices of wider arrays. gelu is the tanh form.
"""
