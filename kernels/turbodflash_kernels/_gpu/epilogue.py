"""How sums of products leave a block: out of their units, with the sums of other blocks."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def finish(
    acc,
    i_m,
    i_n,
    units,
    unit,
    bias,
    residual,
    out,
    partial,
    counters,
    n,
    columns,
    out_stride,
    residual_stride,
):
    """Out of units, together with the other segments where there are any."""
    segment, segments = tl.program_id(2), tl.num_programs(2)
    inside = (i_m < n)[:, None] & (i_n < columns)[None, :]
    acc *= tl.load(units + i_m * segments + segment, mask=i_m < n, other=0.0)[:, None]
    if partial is None:
        _write(
            acc, i_m, i_n, inside, unit, bias, residual, out, columns, out_stride, residual_stride
        )
    else:
        p_partial = partial + i_m[:, None] * columns + i_n[None, :]
        step = n.to(tl.int64) * columns
        tl.store(p_partial + segment * step, acc, mask=inside)
        tl.debug_barrier()  # all of the block has stored before one of it says so
        counter = counters + tl.program_id(1)
        if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == segments - 1:
            total = tl.zeros_like(acc)
            for _ in range(segments):
                total += tl.load(p_partial, mask=inside, other=0.0, cache_modifier=".cg")
                p_partial += step
            _write(
                total,
                i_m,
                i_n,
                inside,
                unit,
                bias,
                residual,
                out,
                columns,
                out_stride,
                residual_stride,
            )
            tl.store(counter, 0)


@triton.jit
def _write(
    total, i_m, i_n, inside, unit, bias, residual, out, columns, out_stride, residual_stride
):
    total *= tl.load(unit + i_n, mask=i_n < columns, other=0.0)[None, :]
    if bias is not None:
        total += tl.load(bias + i_n, mask=i_n < columns, other=0.0)[None, :]
    if residual is not None:
        p_residual = residual + i_m[:, None] * residual_stride + i_n[None, :]
        total += tl.load(p_residual, mask=inside, other=0.0)
    tl.store(out + i_m[:, None] * out_stride + i_n[None, :], total, mask=inside)
