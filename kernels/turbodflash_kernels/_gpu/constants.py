"""What kernels know of a type of cache when they are compiled: functions of codes.py."""

from __future__ import annotations

import triton

from turbodflash_kernels._gpu import codes
from turbodflash_kernels._gpu.codes import LAYOUTS, PLAIN

plane_of = triton.constexpr_function(codes.plane_of)
shape_of = triton.constexpr_function(codes.shape_of)
per_head = triton.constexpr_function(codes.elements_per_head)
scales = triton.constexpr_function(codes.scales_per_head)


@triton.constexpr_function
def is_plain(kind):
    return kind in PLAIN


@triton.constexpr_function
def has_norm(kind):
    """Whether a norm is shared by 128 numbers: sums are multiplied by it, not numbers."""
    return kind not in PLAIN and LAYOUTS[kind].factors == 0


@triton.constexpr_function
def planes_of(kind, dim):
    """Planes of a head."""
    return dim // plane_of(kind, dim)


@triton.constexpr_function
def layout(kind, what):
    """A field of `codes.Layout`."""
    return getattr(LAYOUTS[kind], what)


@triton.constexpr_function
def shape(kind, dim, what):
    """A field of `codes.Shape`."""
    return getattr(shape_of(kind, dim), what)
