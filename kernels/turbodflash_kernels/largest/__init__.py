"""largest: the largest numbers of each row, and where they stand.

bind(count: int)
call(x: f32[n, m]) -> (values f32[n, count], ids int32[n, count]), with m >= count
Values descend; of equal ones the lowest id comes first. NaN counts as -inf.
"""
