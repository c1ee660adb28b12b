"""embed: rows of a table, scaled.

bind(table: Weight [vocabulary, cols], scale: float)
call(tokens: int32[n]) -> f32[n, cols]
"""
