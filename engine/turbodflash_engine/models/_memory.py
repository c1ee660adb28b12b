"""What the layers of a model remember, each beside where it computes."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.cache import DenseLayer, KVShape, LayerFormat, WindowLayer
from turbodflash_engine.models._base import CachePlan, Config
from turbodflash_engine.models._placement import Placement
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Rope


def memory_of(
    config: Config, placement: Placement, ropes: Sequence[Rope], plan: CachePlan
) -> dict[int, DenseLayer]:
    """The memories of the layers that attend, by their numbers.

    ropes: what keys are rotated by, one for each layer of the model.
    """
    formats = plan.types.of_layers(config.kv_shapes)
    return {
        layer: _memory(placement.layers[layer], shape, format, ropes[layer], plan)
        for layer, shape, format in zip(config.kv_layers, config.kv_shapes, formats, strict=True)
    }


def _memory(
    device: Device, shape: KVShape, format: LayerFormat, rope: Rope, plan: CachePlan
) -> DenseLayer:
    slots = 0 if plan.whole else shape.ring(plan.rows)
    if not slots or slots >= plan.positions:
        return DenseLayer(format.room(device, plan.positions), rope)
    return WindowLayer(format.room(device, slots, ring=True), shape.window, rope)
