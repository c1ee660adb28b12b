"""add: the sum of several arrays, each normed first if it has a norm, times a number.

bind(norms: tuple[RmsNorm | None, ...], one for each part, scale: float = 1, groups: int = 1)
call(*parts: f32[n, w]) -> f32[n, w] = scale * (norm_0(part_0) + norm_1(part_1) + ...)
groups: for its norm a row of w numbers is so many rows of w / groups, the length of the weight.
Parts may be column slices of wider arrays. They are added in order, then comes the scale.
"""
