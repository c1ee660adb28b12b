"""tap_conv: a causal convolution over the rows of a block, its taps partly made from the input.

bind(base: f32[taps, width], group: int), with width a multiple of group
call(x: f32[n, width], dynamic: f32[n, taps * groups], residual: f32[n, width] | None = None)
    -> f32[n, width], with groups = width / group
out[t, c] = sum over j of (base[j, c] + dynamic[t, j * groups + c // group]) * x[t - j, c]
            + residual[t, c], with zeros before row 0.
All inputs may be column slices of wider arrays. A row depends on `taps` rows of x: itself and
those before it in the same call.
"""
