"""The gated feed-forward part: norm, one matrix for gate and up, activation, down."""

from __future__ import annotations

from typing import Literal, NamedTuple

from turbodflash_engine.layers.residual import closing
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm


class MlpShape(NamedTuple):
    """width: of the residual stream. hidden: of the layer inside."""

    width: int
    hidden: int

    @property
    def scratch_values(self) -> int:
        """Numbers alive at once for each row of a pass, beside the residual stream."""
        return 2 * self.hidden


def mlp_layout(prefix: str, shape: MlpShape, *, norm: str = "ffn_norm", post: str = "") -> Layout:
    """norm, post: the tensors that norm what comes in, and the result, if one does."""
    width, hidden = shape.width, shape.hidden
    layout = Layout(
        {
            f"{prefix}{norm}.weight": (width,),
            f"{prefix}ffn_gate.weight": (width, hidden),
            f"{prefix}ffn_up.weight": (width, hidden),
            f"{prefix}ffn_down.weight": (hidden, width),
        },
        {
            f"{prefix}ffn_gate.bias": (hidden,),
            f"{prefix}ffn_up.bias": (hidden,),
            f"{prefix}ffn_down.bias": (width,),
        },
    )
    if post:
        layout.required[f"{prefix}{post}.weight"] = (width,)
    return layout


class Mlp:
    """scale * (x + post(down(act(gate(norm(x))) * up(norm(x))))).

    norm, post: the tensors that norm what comes in, and the result; "" = none does.
    """

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        prefix: str,
        shape: MlpShape,
        *,
        eps: float,
        activation: Literal["silu", "gelu"],
        norm: str = "ffn_norm",
        post: str = "",
        scale: float = 1.0,
    ) -> None:
        def normed(name: str) -> RmsNorm:
            return RmsNorm(device.upload(tensors.vector(f"{prefix}{name}.weight")), eps)

        gate_up = (f"{prefix}ffn_gate", f"{prefix}ffn_up")
        wide = tensors.vectors((f"{name}.bias" for name in gate_up), (shape.hidden,) * 2)
        bias = tensors.vectors([f"{prefix}ffn_down.bias"], [shape.width])
        self.alone = device.bind(
            "feed_forward",
            gate_up=device.pack([tensors.part(f"{name}.weight") for name in gate_up], shape.width),
            down=device.pack([tensors.part(f"{prefix}ffn_down.weight")], shape.hidden),
            prologue=normed(norm),
            activation=activation,
            gate_up_bias=None if wide is None else device.upload(wide),
            down_bias=None if bias is None else device.upload(bias),
        )
        """What down gives, neither normed nor added to anything."""
        self._close = closing(device, self.alone, normed(post) if post else None, scale)

    def __call__(self, x: Array) -> Array:
        """x f32[n, width] -> f32[n, width]."""
        return self._close(x, x)
