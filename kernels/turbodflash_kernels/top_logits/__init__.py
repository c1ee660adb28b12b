"""top_logits: the largest logits of each row, and the tokens they are of.

bind(weight: Weight [rows, k], prologue: RmsNorm | None, softcap: float, count: int, width: int),
    with count <= width <= rows; softcap: 0 = there is none
call(x: f32[n, k]) -> (values f32[n, count], ids int32[n, count])
What `largest` gives of the first `width` columns of what `linear`, and `softcap` after it, give: in
the same order, with the same bits. A device need not compute the other logits.
"""
