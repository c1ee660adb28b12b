"""linear: prologue -> matrix product -> + bias -> + residual.

bind(weight: Weight [rows, k], prologue: RmsNorm | Gated | None, bias: Array f32[rows] | None)
call(x: f32[n, k], residual: f32[n, rows] | None = None) -> f32[n, rows]
With a Gated prologue x is f32[n, 2k].

A device may round the activations of quantised weights to 8 bits per 32 inputs.
"""
