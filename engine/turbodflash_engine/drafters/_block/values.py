"""Values of a draft's layer: a projection of their own, or of what its keys are made of."""

from __future__ import annotations

import numpy as np

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._block.layout import VALUES
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Part, RmsNorm


def key_and_value(tensors: Tensors, layer: int) -> list[Part]:
    """What projects the keys of a layer, and its values: the same where the file has one."""
    key, value = f"blk.{layer}.attn_k.weight", VALUES.format(layer)
    return [tensors.part(key), tensors.part(value if value in tensors else key)]


def value_norm(device: Device, tensors: Tensors, layer: int, config: BlockConfig) -> RmsNorm | None:
    """Values made of what keys are made of are normed, by no weight."""
    if VALUES.format(layer) in tensors:
        return None
    return RmsNorm(device.upload(np.ones(config.head_dim, np.float32)), config.eps)
