"""A mixture of experts in place of the feed-forward part: a router chooses a few for each row."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Literal, NamedTuple

from turbodflash_engine.layers.tensors import Layout, Shape, Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, Experts, Gated, RmsNorm

Activation = Literal["silu", "gelu"]

FUSED, APART = ("ffn_gate_up_exps",), ("ffn_gate_exps", "ffn_up_exps")
DOWN = "ffn_down_exps"
ROUTER, SHARED_GATE = "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight"
SHARED_UP, SHARED_DOWN = ("ffn_gate_shexp.weight", "ffn_up_shexp.weight"), "ffn_down_shexp.weight"


class MoeShape(NamedTuple):
    """width: of the residual stream. experts: that there are; used: by a row. hidden: of each.

    shared: hidden size of one that all rows use, through a gate of its own; 0 = there is none.
    """

    width: int
    experts: int
    used: int
    hidden: int
    shared: int = 0

    @property
    def scratch_values(self) -> int:
        """Numbers alive at once for each row of a pass, beside the residual stream."""
        routed = self.used * (self.width + 3 * self.hidden) + self.experts
        return routed + self.width * (1 + self.used) // 2 + 3 * self.shared


def moe_layout(
    prefix: str, shape: MoeShape, present: Container[str], *, norm: str = "ffn_norm"
) -> Layout:
    """present: names in the file, which may hold gates and ups apart or as one.

    norm: the tensor that norms what the experts read.
    """
    width, experts, hidden = shape.width, shape.experts, shape.hidden
    names = _gate_up_names(prefix, present)
    rows = 2 * hidden // len(names)
    required: dict[str, Shape] = {
        f"{prefix}{norm}.weight": (width,),
        f"{prefix}{ROUTER}": (width, experts),
        f"{prefix}{DOWN}.weight": (hidden, width, experts),
        **{f"{prefix}{name}.weight": (width, rows, experts) for name in names},
    }
    if shape.shared:
        required[f"{prefix}{SHARED_GATE}"] = (width,)
        required |= {f"{prefix}{name}": (width, shape.shared) for name in SHARED_UP}
        required[f"{prefix}{SHARED_DOWN}"] = (shape.shared, width)
    scales = (f"{prefix}{name}.scale" for name in (*names, DOWN))
    return Layout(required, dict.fromkeys(scales, (experts,)))


class Moe:
    """x + the experts of norm(x), weighted, + gate * the shared expert of norm(x), if there is one.

    router: what the router multiplies; without it the normed rows that the experts read.
    """

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        prefix: str,
        shape: MoeShape,
        *,
        eps: float,
        activation: Activation,
        norm: str = "ffn_norm",
        router: RmsNorm | None = None,
    ) -> None:
        before = RmsNorm(device.upload(tensors.vector(f"{prefix}{norm}.weight")), eps)
        self._experts = shape.experts
        self._router = _router(device, tensors, prefix, shape, router or before)
        self._moe = device.bind(
            "moe",
            gate_up=tuple(
                _experts(device, tensors, f"{prefix}{name}", shape.width)
                for name in _gate_up_names(prefix, tensors)
            ),
            down=_experts(device, tensors, f"{prefix}{DOWN}", shape.hidden),
            experts=shape.experts,
            used=shape.used,
            prologue=before,
            activation=activation,
        )
        self._shared = (
            _SharedExpert(device, tensors, prefix, shape, before, activation)
            if shape.shared
            else None
        )

    def __call__(self, x: Array) -> Array:
        """x f32[n, width] -> f32[n, width]."""
        return self._added(x, x)

    def alone(self, x: Array) -> Array:
        """What the experts make of x f32[n, width], added to nothing."""
        return self._added(x, None)

    def _added(self, x: Array, residual: Array | None) -> Array:
        logits = self._router(x)
        y: Array = self._moe(x, logits[:, : self._experts], residual)
        if self._shared is None:
            return y
        return self._shared(x, logits[:, self._experts :], y)


class _SharedExpert:
    """sigmoid(gate) * down(act(gate(norm(x))) * up(norm(x))) + residual."""

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        prefix: str,
        shape: MoeShape,
        norm: RmsNorm,
        activation: Activation,
    ) -> None:
        parts = [tensors.part(f"{prefix}{name}") for name in SHARED_UP]
        self._gate_up = device.bind(
            "linear", weight=device.pack(parts, shape.width), prologue=norm, bias=None
        )
        down = device.pack([tensors.part(f"{prefix}{SHARED_DOWN}")], shape.shared)
        self._down = device.bind("linear", weight=down, prologue=Gated(activation), bias=None)
        self._gate = device.bind("gate", activation="sigmoid")

    def __call__(self, x: Array, gate: Array, residual: Array) -> Array:
        """gate: f32[n, 1], before the sigmoid."""
        result: Array = self._gate(gate, self._down(self._gate_up(x)), residual)
        return result


def _gate_up_names(prefix: str, present: Container[str]) -> tuple[str, ...]:
    return FUSED if f"{prefix}{FUSED[0]}.weight" in present else APART


def _router(
    device: Device, tensors: Tensors, prefix: str, shape: MoeShape, norm: RmsNorm
) -> Callable[[Array], Array]:
    """f32[n, width] -> the logits of the experts, then the gate of the shared one: f32[n, ...]."""
    names = (ROUTER, SHARED_GATE) if shape.shared else (ROUTER,)
    parts = [tensors.part(f"{prefix}{name}") for name in names]
    return device.bind("linear", weight=device.pack(parts, shape.width), prologue=norm, bias=None)


def _experts(device: Device, tensors: Tensors, name: str, cols: int) -> Experts:
    weight = device.pack([tensors.part(f"{name}.weight")], cols)
    scale = f"{name}.scale"
    return Experts(weight, device.upload(tensors.vector(scale)) if scale in tensors else None)
