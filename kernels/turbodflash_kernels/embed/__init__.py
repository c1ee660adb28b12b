"""embed: rows of a table, scaled.

bind(table: Weight [vocabulary, cols], scale: float)
call(tokens: int32[n], or a column of a wider array, int32[n, 1]) -> f32[n, cols]
"""
