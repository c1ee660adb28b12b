"""feed_forward: down(act(gate(x)) * up(x)), the gated part of a layer.

bind(gate_up: Weight [2 hidden, k], down: Weight [rows, hidden], prologue: RmsNorm | None,
    activation: "silu" | "gelu", gate_up_bias: Array f32[2 hidden] | None,
    down_bias: Array f32[rows] | None)
call(x: f32[n, k], residual: f32[n, rows] | None = None) -> f32[n, rows]
What two `linear`s give, the second with a Gated prologue: with the same bits. A device need not
keep what is between them.
"""
