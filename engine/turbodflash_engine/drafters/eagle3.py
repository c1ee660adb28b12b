"""EAGLE-3: one layer over pairs of a token and what the model made of the token before it.

A feature is three of the model's residual rows, fused.
"""

from __future__ import annotations

from collections.abc import Container

from turbodflash_engine.drafters._base import Drafter, FileKind, Setting
from turbodflash_engine.drafters._eagle3.config import (
    NORM,
    Eagle3Config,
    check_eagle3,
    eagle3_layout,
    read_eagle3,
)
from turbodflash_engine.drafters._eagle3.layer import Layer
from turbodflash_engine.drafters._eagle3.tables import read_words
from turbodflash_engine.drafters._pairs.drafter import PairDrafter, Parts
from turbodflash_engine.layers.head import Head
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_kernels.op import RmsNorm


class Eagle3(PairDrafter):
    """As all drafters of pairs."""

    name = "draft-eagle3"

    def __init__(self, config: Eagle3Config, tensors: Tensors, setting: Setting) -> None:
        device, plan = setting.device, setting.plan
        words = read_words(device, tensors, config, setting.target)
        (format,) = plan.types.of_layers(config.kv_shapes)
        memory = format.room(device, plan.positions)
        norm = RmsNorm(device.upload(tensors.vector(NORM)), config.eps)
        parts = Parts(
            taps=config.taps,
            tap_width=config.target_width,
            width=config.width,
            words=words,
            memory=memory,
            layer=Layer(device, tensors, config, memory, words.embedding),
            head=Head(device, words.head, norm),
            weight_bytes=tensors.weight_bytes(device.bytes_per_weight),
        )
        super().__init__(parts, setting)


def claims(metadata: Metadata, names: Container[str]) -> bool:
    return metadata.architecture == "eagle3"


def build(config: Eagle3Config, tensors: Tensors, setting: Setting) -> Drafter:
    return Eagle3(config, tensors, setting)


PLUGIN = FileKind(claims, read_eagle3, check_eagle3, eagle3_layout, build)
