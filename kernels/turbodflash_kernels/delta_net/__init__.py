"""delta_net: a gated delta net, from projected rows to gated, normed heads.

bind(state: State, taps: f32[taps, channels], dt_bias: f32[value_heads], decay: f32[value_heads],
     norm: RmsNorm, eps: float)
call(x: f32[n, width], parents: int32[n] | None = None) -> f32[n, inner]
A row of x is [q | k | v | z | beta | alpha]: key_heads * head_dim of q and of k, inner of v and of
z, value_heads of beta and of alpha (see `DeltaShape`); it may be a slice of a wider row.

What a row means, given the memory before it, the `window` of the rows before and one S a head:

    c      = silu(sum over t of taps[t] * u[row - (taps - 1) + t])   u = [q | k | v], per channel
    q, k   = c / sqrt(sum(c^2) + eps) of each head, q also / sqrt(head_dim);  v = c
    g      = exp(decay * softplus(alpha + dt_bias));  b = sigmoid(beta)
    S      = g S + k (b (v - (g S)^T k))^T;  o = S^T q               key head = head % key_heads
    result = norm(o) * silu(z), head by head (weight f32[head_dim])

softplus(x) = ln(1 + e^x), x itself above 20. Rows are taken one after the other on every device,
in prompts too: so the bits of a row do not depend on how rows were grouped.

counts, i32[4] in the device's memory, are written before a pass by whoever keeps the state:

    ROUND    if the state has not seen this round, the first SETTLED pending rows are taken into
             its memory, once and for good: they were kept
    CARRIED  so many of the first pending rows come before x and after the memory, which stays as
             it is: they are of the trial that x belongs to. 0 where rows are still to settle
    TAKEN    so many of the first rows of x the memory takes in at once, 0 where some are carried.
             The others become the pending rows CARRIED, CARRIED + 1, ...: there must be room

parents: x is a tree (see `attend`): row 0 follows what was before, any other row its parent, an
earlier one. Its window and its S are those of its ancestors. Only where TAKEN is 0.
"""
