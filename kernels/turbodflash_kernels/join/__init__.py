"""join: arrays side by side, each normed first if it has a norm.

bind(norms: tuple[RmsNorm | None, ...]), one for each part
call(*parts: f32[n, w_i]) -> f32[n, sum of w_i]
Parts may be column slices of wider arrays.
"""
