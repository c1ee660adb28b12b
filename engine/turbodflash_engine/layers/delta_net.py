"""A gated delta net in place of attention: it remembers all tokens in a state of fixed size."""

from __future__ import annotations

import numpy as np

from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.attention import Places
from turbodflash_engine.layers.shapes import positive
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_kernels.device import Device, State
from turbodflash_kernels.op import Array, DeltaShape, RmsNorm

MOST_HEADS, MOST_TAPS = 4096, 64


def delta_shape(meta: Metadata) -> DeltaShape:
    """As metadata has it. Raises BadModel for what no delta net can be made of."""
    shape = DeltaShape(
        key_heads=positive(meta, "ssm.group_count", MOST_HEADS),
        value_heads=positive(meta, "ssm.time_step_rank", MOST_HEADS),
        head_dim=positive(meta, "ssm.state_size", MOST_HEADS),
        taps=positive(meta, "ssm.conv_kernel", MOST_TAPS),
    )
    inner = positive(meta, "ssm.inner_size")
    if inner != shape.inner:
        raise BadModel(
            f"'{meta.source}': metadata key '{meta.prefix}ssm.inner_size' is {inner:,}, "
            f"expected {shape.value_heads} heads of {shape.head_dim}, {shape.inner:,}"
        )
    if shape.value_heads % shape.key_heads or shape.taps < 2:
        raise BadModel(
            f"'{meta.source}' has {shape.value_heads} value heads over {shape.key_heads} key heads "
            f"and convolves {shape.taps} rows; expected a multiple, and two rows at least"
        )
    return shape


def delta_layout(prefix: str, width: int, shape: DeltaShape) -> Layout:
    heads = shape.value_heads
    return Layout(
        {
            f"{prefix}attn_norm.weight": (width,),
            f"{prefix}attn_qkv.weight": (width, shape.channels),
            f"{prefix}attn_gate.weight": (width, shape.inner),
            f"{prefix}ssm_conv1d.weight": (shape.taps, shape.channels),
            f"{prefix}ssm_dt.bias": (heads,),
            f"{prefix}ssm_a": (heads,),
            f"{prefix}ssm_beta.weight": (width, heads),
            f"{prefix}ssm_alpha.weight": (width, heads),
            f"{prefix}ssm_norm.weight": (shape.head_dim,),
            f"{prefix}ssm_out.weight": (shape.inner, width),
        }
    )


def delta_values(shape: DeltaShape) -> int:
    """Numbers alive at once for each row of a pass, beside the residual stream."""
    return 2 * shape.width + 2 * shape.inner


class DeltaNet:
    """x + out(delta_net(projections(norm(x)))), with what it remembers in `state`."""

    PROJECTIONS = ("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha")

    def __init__(
        self, device: Device, tensors: Tensors, prefix: str, width: int, *, eps: float, state: State
    ) -> None:
        def vector(name: str) -> Array:
            return device.upload(tensors.vector(f"{prefix}{name}"))

        parts = [tensors.part(f"{prefix}{name}.weight") for name in self.PROJECTIONS]
        self._project = device.bind(
            "linear",
            weight=device.pack(parts, width),
            prologue=RmsNorm(vector("attn_norm.weight"), eps),
            bias=None,
        )
        taps = tensors.vector(f"{prefix}ssm_conv1d.weight").reshape(-1, state.shape.taps)
        self._delta_net = device.bind(
            "delta_net",
            state=state,
            taps=device.upload(np.ascontiguousarray(taps.T)),
            dt_bias=vector("ssm_dt.bias"),
            decay=vector("ssm_a"),
            norm=RmsNorm(vector("ssm_norm.weight"), eps),
            eps=eps,
        )
        out = device.pack([tensors.part(f"{prefix}ssm_out.weight")], state.shape.inner)
        self._out = device.bind("linear", weight=out, prologue=None, bias=None)

    def __call__(self, x: Array, places: Places, last: int) -> Array:
        """x f32[n, width] -> f32[last, width], the last rows; all n are remembered."""
        first = x.shape[0] - last
        y: Array = self._delta_net(self._project(x), places.parents)
        result: Array = self._out(y[first:], x[first:])
        return result
