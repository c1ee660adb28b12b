"""moe: norm -> the best experts of each row -> gate and up -> activation -> down -> weighted sum.

bind(gate_up: tuple[Experts, ...], down: Experts, experts: int, used: int,
     prologue: RmsNorm | None, activation: "silu" | "gelu")
call(x: f32[n, k], router: f32[n, experts], residual: f32[n, width] | None = None) -> f32[n, width]

gate_up: what they hold of an expert, one below the other, are its 2 * hidden rows of k inputs:
`hidden` of the gate, then as many of up. One entry where a file has them fused, two where apart.
down: `width` rows of `hidden` inputs an expert.

Of a row, `used` experts are chosen: those of the largest router logits, of equal ones the first.
Their weights are the softmax over all experts, divided by what the chosen ones have together, or by
2^-14 if that is more. Experts are added in the order of their logits, then the residual.

Only rows of `x` are normed; the router's logits come as they are. Nothing on the host depends on
what is chosen, so a captured pass serves any text. A device reads no weights of an expert that no
row has chosen, and may round activations as `linear` does.
"""
