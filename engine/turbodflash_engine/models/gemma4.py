"""gemma4: sliding and full layers of different heads, values made of keys, experts beside an MLP.

In the small ones each token brings a part of its own to every layer, and the last layers look at
what earlier ones remember.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from turbodflash_engine.cache import Cache, DenseLayer
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.layers.attention import Attention, Places
from turbodflash_engine.layers.mlp import Mlp
from turbodflash_engine.layers.moe import Moe
from turbodflash_engine.layers.residual import closing, scale_of
from turbodflash_engine.layers.rope import DIVISORS
from turbodflash_engine.layers.steps import AS_THE_DEVICE, Threads
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.models._base import Architecture, CachePlan
from turbodflash_engine.models._decoder import Decoder
from turbodflash_engine.models._gemma4_config import (
    EXPERTS_NORM,
    LAYER_SCALE,
    PART_GATE,
    PART_NORM,
    PART_OUTPUT,
    PARTS,
    PARTS_NORM,
    PARTS_PROJECTION,
    POST_ATTENTION,
    POST_EXPERTS,
    POST_FFN,
    POST_MLP,
    ROUTER_SCALE,
    Gemma4Config,
    layout,
)
from turbodflash_engine.models._memory import memory_of
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.models._stage import Block
from turbodflash_engine.models._trunk import trunk
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm, Rope

ACTIVATION: Literal["gelu"] = "gelu"


def build(
    config: Gemma4Config,
    tensors: Tensors,
    placement: Placement,
    plan: CachePlan,
    threads: Threads = AS_THE_DEVICE,
) -> Decoder:
    ropes = _ropes(config, tensors)
    memory = _memory(config, placement, plan, ropes)
    blocks = [
        _block(device, tensors, config, layer, ropes[layer], memory[config.sources[layer]])
        for layer, device in enumerate(placement.layers)
    ]
    cache = Cache(list(memory.values()), plan.positions)
    return trunk(
        config,
        tensors,
        placement,
        blocks,
        cache,
        threads,
        embedding_scale=math.sqrt(config.width),
        softcap=config.softcap,
        accompany=_parts(placement.embedding, tensors, config) if config.part else None,
    )


def _ropes(config: Gemma4Config, tensors: Tensors) -> list[Rope]:
    """The rotation of each layer."""
    divisors = tensors.vector(DIVISORS) if DIVISORS in tensors else None
    rope = config.rope.rope("neox", config.n_rot, divisors)
    sliding = config.sliding_rope.rope("neox", config.sliding_n_rot)
    return [sliding if shape.window else rope for shape in config.attention]


def _memory(
    config: Gemma4Config, placement: Placement, plan: CachePlan, ropes: list[Rope]
) -> dict[int, DenseLayer]:
    """By the layer that fills it. Raises BadUsage where another device would look at it."""
    for layer, source in enumerate(config.sources):
        if placement.layers[layer] is not placement.layers[source]:
            raise BadUsage(
                f"layer {layer} looks at the keys of layer {source}, so both must be on one device",
                hint="put all layers on one device: -ngl 0, or -ngl all",
            )
    return memory_of(config, placement, ropes, plan)


def _block(
    device: Device,
    tensors: Tensors,
    config: Gemma4Config,
    layer: int,
    rope: Rope,
    memory: DenseLayer,
) -> Block:
    prefix = f"blk.{layer}."
    attention = Attention(
        device,
        tensors,
        prefix,
        config.attention[layer],
        eps=config.eps,
        rope=rope,
        memory=memory,
        post=POST_ATTENTION,
    )
    scale = scale_of(tensors, prefix + LAYER_SCALE)
    own = _Part(device, tensors, config, layer, scale) if config.part else None
    feed = _feed_forward(device, tensors, config, layer, 1.0 if own else scale)

    def block(x: Array, places: Places, last: int) -> Array:
        x = feed(attention(x, places, last))
        if own is None or places.beside is None:
            return x
        return own(x, places.beside[places.beside.shape[0] - last :])

    return block


def _feed_forward(
    device: Device, tensors: Tensors, config: Gemma4Config, layer: int, scale: float
) -> Callable[[Array], Array]:
    """x -> scale * (x + norm(MLP)), or, with experts, scale * (x + norm(norm(MLP) + norm(moe)))."""
    prefix = f"blk.{layer}."
    mlp = Mlp(
        device,
        tensors,
        prefix,
        config.mlp[layer],
        eps=config.eps,
        activation=ACTIVATION,
        post=POST_FFN,
        scale=scale,
    )
    if not config.moe:
        return mlp

    def norm(name: str) -> RmsNorm:
        return RmsNorm(device.upload(tensors.vector(f"{prefix}{name}.weight")), config.eps)

    routed = tensors.vector(prefix + ROUTER_SCALE) / math.sqrt(config.width)
    moe = Moe(
        device,
        tensors,
        prefix,
        config.moe[layer],
        eps=config.eps,
        activation=ACTIVATION,
        norm=EXPERTS_NORM,
        router=RmsNorm(device.upload(routed), config.eps),
    )
    both = device.bind("add", norms=(norm(POST_MLP), norm(POST_EXPERTS)))
    end = device.bind("add", norms=(None, norm(POST_FFN)), scale=scale)

    def feed(x: Array) -> Array:
        result: Array = end(x, both(mlp.alone(x), moe.alone(x)))
        return result

    return feed


class _Part:
    """scale * (x + norm(output(gelu(gate(x)) * part))), the layer's part of each token's own."""

    def __init__(
        self, device: Device, tensors: Tensors, config: Gemma4Config, layer: int, scale: float
    ) -> None:
        prefix, part = f"blk.{layer}.", config.part
        self._columns = slice(layer * part, (layer + 1) * part)

        def product(name: str, cols: int) -> Callable[..., Array]:
            weight = device.pack([tensors.part(prefix + name)], cols)
            return device.bind("linear", weight=weight, prologue=None, bias=None)

        self._project = product(PART_GATE, config.width)
        self._gate = device.bind("gate", activation=ACTIVATION)
        norm = RmsNorm(device.upload(tensors.vector(prefix + PART_NORM)), config.eps)
        self._close = closing(device, product(PART_OUTPUT, part), norm, scale)

    def __call__(self, x: Array, parts: Array) -> Array:
        """parts: f32[n, layers * part]."""
        return self._close(self._gate(self._project(x), parts[:, self._columns]), x)


def _parts(
    device: Device, tensors: Tensors, config: Gemma4Config
) -> Callable[[Array, Array], Array]:
    """(tokens, embedded rows) -> what each token brings to the layers: f32[n, layers * part].

    It is looked up, and made of the embedding: (norm(projection / sqrt(width)) + looked up *
    sqrt(part)) / sqrt(2), each layer's part normed by itself.
    """
    columns = config.layers * config.part
    table = device.pack([tensors.part(PARTS)], columns)
    look_up = device.bind("embed", table=table, scale=math.sqrt(config.part))
    weight = device.pack([tensors.part(PARTS_PROJECTION)], config.width)
    project = device.bind("linear", weight=weight, prologue=None, bias=None)
    # dividing the rows divides the mean of their squares: the norm's eps grows instead
    norm = RmsNorm(device.upload(tensors.vector(PARTS_NORM)), config.eps * config.width)
    add = device.bind("add", norms=(norm, None), scale=math.sqrt(0.5), groups=config.layers)

    def parts(tokens: Array, x: Array) -> Array:
        result: Array = add(project(x), look_up(tokens))
        return result

    return parts


PLUGIN = Architecture(Gemma4Config.read, layout, build)
